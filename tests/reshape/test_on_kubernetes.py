"""A pool of brokers is scaled up and down, at full size: `make reshape-kubernetes`."""

import os
from collections.abc import Iterator

import pytest
from kubernetes_brokers import KubernetesBrokers
from kubernetes_installation import Installation
from numbered_load import PRELOADED_SIZE, NumberedLoad
from proofs import RESHAPED_PODS
from reshape_run import ReshapeRun
from reshape_topics import create_topics

pytestmark = [*RESHAPED_PODS.marks, pytest.mark.kubernetes, pytest.mark.timeout(3600)]

PARTITIONS, BYTES, RATE = 500, 2e9, 300
SEED = int(os.environ.get("FAIRLEAD_FIRST_SEED", "0"))


@pytest.fixture
def installation() -> Iterator[Installation]:
    place = Installation()
    place.ensure_installed()
    yield place
    place.uninstall()


def test_a_pool_is_scaled_to_five_and_back(installation: Installation) -> None:
    brokers = KubernetesBrokers(installation)
    places = create_topics(brokers.bootstrap, PARTITIONS)
    load = NumberedLoad(places, RATE, {"bootstrap.servers": brokers.bootstrap})
    load.preload(round(BYTES / PRELOADED_SIZE / PARTITIONS))
    run = ReshapeRun(brokers, load, places, SEED, is_killing=True, say=print)
    verdict = run.run()
    print("\n".join(verdict.lines()))
    assert not verdict.findings, verdict.findings
    assert verdict.kills.total()
