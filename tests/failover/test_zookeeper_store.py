"""The drills with the metadata in ZooKeeper: as fast as on files, and nothing is lost."""

from collections.abc import Callable
from typing import Any

import pytest
from drill_settings import IS_MEASURED
from local_cluster import Cli
from proofs import is_whole

pytestmark = [pytest.mark.slow, pytest.mark.crash]

Drill = Callable[..., Any]
ALWAYS = {("kill", "leader"), ("kill", "leader+controller")}
FAULTS = [
    *(("kill", target) for target in ("leader", "follower", "controller", "leader+controller")),
    *(("stop", target) for target in ("leader", "controller", "leader+controller")),
    *(("pause", target) for target in ("leader", "controller")),
]


@pytest.mark.parametrize(("fault", "target"), FAULTS)
def test_a_process_fails_at_load(
    zookeeper_cluster: Cli, drill: Drill, fault: str, target: str
) -> None:
    if (fault, target) not in ALWAYS and not (IS_MEASURED or is_whole()):
        pytest.skip("a part of the proofs: make proofs")
    drill(zookeeper_cluster, fault, target)
