"""The network around brokers and the controller is cut at load, and joined again."""

from collections.abc import Callable
from typing import Any

import pytest
from drill_settings import HOLD_S
from local_cluster import Cli
from proofs import DRILL_RUNS

pytestmark = [pytest.mark.slow, pytest.mark.crash]

Drill = Callable[..., Any]


@pytest.mark.parametrize("target", ["leader", "follower"])
def test_a_broker_is_cut_off_at_load(proxied_cluster: Cli, drill: Drill, target: str) -> None:
    drill(proxied_cluster, "isolate", target)


def test_the_controller_is_cut_off_at_load(proxied_cluster: Cli, drill: Drill) -> None:
    """Nobody notices: it hears nobody, so it takes nobody's leadership away."""
    outcome = drill(proxied_cluster, "isolate", "controller")
    found = [(run.partitions_hit, run.recovery_ms) for run in outcome.runs]
    assert found == [(0, None)] * DRILL_RUNS.chosen()


def test_leader_and_controller_are_cut_off_together(proxied_cluster: Cli, drill: Drill) -> None:
    """Whoever could decide reaches nobody: leaders move once the network is whole again."""
    drill(proxied_cluster, "isolate", "leader+controller", limit_ms=int(HOLD_S * 1000) + 4500)
