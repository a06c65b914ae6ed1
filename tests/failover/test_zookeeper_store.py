"""The drills with the metadata in ZooKeeper: as fast as on files, and nothing is lost."""

from collections.abc import Callable
from typing import Any

import pytest
from drill_settings import process_faults
from local_cluster import Cli
from proofs import OTHER_FAULTS

pytestmark = [pytest.mark.slow, pytest.mark.crash]

Drill = Callable[..., Any]
ALWAYS = (("kill", "leader"), ("kill", "leader+controller"))
FAULTS = process_faults(*ALWAYS, otherwise=OTHER_FAULTS.marks)


@pytest.mark.parametrize(("fault", "target"), FAULTS)
def test_a_process_fails_at_load(
    zookeeper_cluster: Cli, drill: Drill, fault: str, target: str
) -> None:
    drill(zookeeper_cluster, fault, target)
