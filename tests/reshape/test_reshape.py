"""Three brokers become five and three again, with kills; `make reshape` does it at full size."""

import os
from pathlib import Path

import pytest
from keyed_load import CLEANING, COMPACTED, KeyedLoad, KeyedProgress
from numbered_load import NumberedLoad
from reshape_run import ReshapeRun
from reshape_topics import create_topics
from reshaped_cluster import LocalProcesses

pytestmark = [pytest.mark.slow, pytest.mark.crash, pytest.mark.timeout(600)]

PARTITIONS, PRELOADED, RATE = 30, 500, 200
SEED = int(os.environ.get("FAIRLEAD_FIRST_SEED", "0"))


def test_brokers_come_and_go_among_kills(tmp_path: Path) -> None:
    cluster = LocalProcesses(tmp_path, {}, kills_apart_s=(3.0, 8.0))
    try:
        cluster.start()
        places = create_topics(cluster.bootstrap, PARTITIONS)
        load = NumberedLoad(places, RATE, {"bootstrap.servers": cluster.bootstrap})
        load.preload(PRELOADED)
        run = ReshapeRun(cluster, load, places, SEED, is_killing=True, say=print)
        verdict = run.run()
    finally:
        cluster.stop()
    assert not verdict.findings, verdict.findings
    assert verdict.records_count > PARTITIONS * PRELOADED
    assert verdict.kills.total()


def test_compacted_topics_keep_the_last_value_of_each_key(tmp_path: Path) -> None:
    cluster = LocalProcesses(tmp_path, CLEANING, kills_apart_s=(3.0, 8.0))
    try:
        cluster.start()
        places = create_topics(cluster.bootstrap, PARTITIONS, COMPACTED)
        load = KeyedLoad(places, RATE, {"bootstrap.servers": cluster.bootstrap})
        load.preload(PRELOADED)
        run = ReshapeRun(
            cluster, load, places, SEED, is_killing=True, say=print, expect=KeyedProgress
        )
        verdict = run.run()
    finally:
        cluster.stop()
    assert not verdict.findings, verdict.findings
    assert verdict.records_count < load.acknowledged.total() / 2, "cleaners were at work"
    assert verdict.kills.total()
