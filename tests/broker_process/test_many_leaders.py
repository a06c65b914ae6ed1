"""The broker that leads a thousand partitions dies: all of them move within a second."""

import sys
from pathlib import Path

import pytest
from processor_wait import Stopwatch
from starvation import StarvationWatch

PROJECT = Path(__file__).resolve().parents[2]
if str(PROJECT / "benchmarks") not in sys.path:
    sys.path.insert(0, str(PROJECT / "benchmarks"))

from fairlead_bench.peers.cluster_state import wait_until_serving  # noqa: E402
from fairlead_bench.peers.fairlead_cluster import FairleadCluster  # noqa: E402
from fairlead_bench.scenarios.many_partitions import (  # noqa: E402
    create_partitions,
    elect_preferred,
    time_failover,
    time_return,
)

pytestmark = pytest.mark.slow

PARTITIONS = 1000
ROUNDS = 2
LIMIT_S = 1.0


def test_a_thousand_partitions_of_a_dead_broker_move_within_a_second(tmp_path: Path) -> None:
    with FairleadCluster(tmp_path) as cluster, StarvationWatch(lambda: cluster.pids) as watch:
        cluster.start()
        wait_until_serving(cluster)
        create_partitions(cluster, PARTITIONS, leader_index=0)
        rounds, left_out_s = [], []
        for _ in range(ROUNDS):
            survivors = [each.pid for each in cluster.brokers[1:]]
            stopwatch = Stopwatch(cluster.controller.pid, beside=survivors)
            rounds.append(time_failover(cluster, 0))
            left_out_s.append(stopwatch.left_out_s())
            time_return(cluster, 0, partitions=PARTITIONS)
            elect_preferred(cluster, 0, partitions=PARTITIONS)
        assert [each.moved_count for each in rounds] == [PARTITIONS] * ROUNDS
        # The quickest: this is about the work, not about who else uses the machine.
        timed = list(zip(rounds, left_out_s, strict=True))
        assert min(each.leaders_s - waited_s for each, waited_s in timed) <= LIMIT_S, timed
        assert min(each.acknowledged_s - waited_s for each, waited_s in timed) <= LIMIT_S, timed
        live = [line for line in cluster.fencings() if ": broker 0 " not in line]
        given_up = watch.judged(live)
        assert not given_up, given_up
