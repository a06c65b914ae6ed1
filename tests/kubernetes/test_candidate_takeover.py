"""Two candidates as processes on a real API server: who acts when one of them ends or is paused.

Each test prints the times that it has measured (`-s` shows them).
"""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from live_candidates import CandidateCluster, create_topic, produce, wait_for
from processor_wait import waited_s

from fairlead_controller.kubernetes.acting_lock import acting, lock_path
from fairlead_kube.kinds import CLUSTER_STATE, LEASE, PARTITION_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kubernetes

TAKEOVER_S_MAX = 4.0
HANDOVER_S_MAX = 1.0


@pytest.fixture
def cluster(tmp_path: Path, namespace: str, kube: Any, run: Any) -> Iterator[CandidateCluster]:
    """Two candidates and three brokers, one of the candidates active."""
    with CandidateCluster(tmp_path, namespace) as cluster:
        run(cluster.declare(kube))
        for number in range(2):
            cluster.start_candidate(number)
        brokers = [cluster.start_broker(node_id) for node_id in range(3)]
        for broker in brokers:
            broker.wait_ready()
        wait_for(lambda: cluster.active().metric("fairlead_controller_sessions") == 3)
        yield cluster


def leaders(candidate: Any, cluster: CandidateCluster, topic: str) -> list[int]:
    return [part["leader"] for part in cluster.partitions(candidate, topic)]


def waits(standby: Any, cluster: CandidateCluster) -> list[float]:
    """How long the next controller and each broker have waited for a processor so far."""
    return [waited_s(each.process.pid) for each in (standby, *cluster.brokers)]


def takeover(
    cluster: CandidateCluster, number: int, what: str, limit_s: float
) -> tuple[Any, Any, float]:
    """Send the active candidate a signal; wait until the other one reigns with all brokers."""
    active = cluster.active()
    standby = next(each for each in cluster.candidates if each is not active)
    before = active.epoch
    wait_for(lambda: standby.metric("fairlead_controller_waiting_brokers") == 3)
    waited = waits(standby, cluster)
    started = time.monotonic()
    active.send(number)
    wait_for(lambda: standby.epoch > before)
    reigning_s = time.monotonic() - started
    wait_for(lambda: standby.metric("fairlead_controller_sessions") == 3)
    total_s = time.monotonic() - started
    print(f"\n{what}: leaders elected after {reigning_s:.2f} s, all brokers after {total_s:.2f} s")
    controller_s, *brokers_s = (
        late - early for early, late in zip(waited, waits(standby, cluster), strict=True)
    )
    assert total_s - controller_s - max(brokers_s) < limit_s
    return active, standby, total_s


def test_the_standby_takes_over_from_a_killed_one(cluster: CandidateCluster) -> None:
    create_topic(cluster.bootstrap, "t")
    before = leaders(cluster.active(), cluster, "t")
    _, standby, _ = takeover(cluster, signal.SIGKILL, "killed", TAKEOVER_S_MAX)
    assert leaders(standby, cluster, "t") == before, "no leader moves because a controller went"
    produce(cluster.bootstrap, "t")
    create_topic(cluster.bootstrap, "u")
    produce(cluster.bootstrap, "u")


def test_a_stopped_one_gives_the_lease_back(cluster: CandidateCluster) -> None:
    create_topic(cluster.bootstrap, "t")
    active, _, _ = takeover(cluster, signal.SIGTERM, "stopped", HANDOVER_S_MAX)
    assert active.process.wait(60) == 0
    produce(cluster.bootstrap, "t")


def test_brokers_serve_on_without_any_controller(cluster: CandidateCluster) -> None:
    create_topic(cluster.bootstrap, "t")
    for candidate in cluster.candidates:
        candidate.send(signal.SIGKILL)
        candidate.process.wait()
    produce(cluster.bootstrap, "t")
    cluster.start_candidate(0)
    wait_for(lambda: cluster.active().metric("fairlead_controller_sessions") == 3)
    create_topic(cluster.bootstrap, "u")


def test_a_paused_one_does_not_act_when_it_wakes(
    cluster: CandidateCluster, kube: Any, run: Any
) -> None:
    create_topic(cluster.bootstrap, "t")
    paused_at = time.monotonic()
    active, standby, _ = takeover(cluster, signal.SIGSTOP, "paused", TAKEOVER_S_MAX)
    # While it sleeps a broker dies: when it wakes it has every reason to act, and finds it at once.
    cluster.brokers[2].send(signal.SIGKILL)
    wait_for(lambda: 2 not in leaders(standby, cluster, "t"))
    wait_for(lambda: time.monotonic() > paused_at + 10)
    before = run(tables(kube, cluster))
    assert {epoch for _, epoch in before.values()} == {standby.epoch}
    woken = time.monotonic()
    active.send(signal.SIGCONT)
    assert active.process.wait(60) == 3, active.last_words()
    print(f"\nwoken after 10 s: it ended {1000 * (time.monotonic() - woken):.0f} ms later")
    assert "must not act" in active.last_words()
    assert run(tables(kube, cluster)) == before, "nothing was written by it"
    produce(cluster.bootstrap, "t")


async def tables(kube: Any, cluster: CandidateCluster) -> dict[str, tuple[str, int]]:
    """Version and epoch of every table."""
    found = {}
    for kind in (CLUSTER_STATE, PARTITION_TABLE):
        for item in (await kube.list(kind, cluster.namespace)).items:
            metadata, spec = item["metadata"], item["spec"]
            found[metadata["name"]] = (metadata["resourceVersion"], spec["controllerEpoch"])
    return found


def test_losing_the_lease_ends_the_process(cluster: CandidateCluster, kube: Any, run: Any) -> None:
    active = cluster.active()
    for candidate in cluster.candidates:
        if candidate is not active:
            candidate.end()

    async def steal() -> None:
        lease = await kube.get(LEASE, cluster.namespace, "fairlead-operator")
        patch = {"spec": {"holderIdentity": "a thief"}}
        await kube.patch(LEASE, cluster.namespace, lease["metadata"]["name"], patch)

    run(steal())
    assert active.process.wait(60) == 3
    assert "a thief" in active.last_words()


def test_idle_candidates_write_nothing_but_the_lease(
    cluster: CandidateCluster, kube: Any, run: Any
) -> None:
    create_topic(cluster.bootstrap, "t")
    active = cluster.active()
    wait_for(lambda: not run(under_replicated(active, cluster)))
    before = run(tables(kube, cluster))
    started, cpu = time.monotonic(), active.metric("process_cpu_seconds_total")
    wait_for(lambda: time.monotonic() - started > 5)
    share = (active.metric("process_cpu_seconds_total") - cpu) / (time.monotonic() - started)
    print(f"\nidle, three brokers: {100 * share:.1f} % of a core")
    assert run(tables(kube, cluster)) == before


async def under_replicated(candidate: Any, cluster: CandidateCluster) -> int:
    _, status = candidate.ask("GET", f"{cluster.path}/status")
    return int(status["partitions"]["underReplicated"])


def test_the_lease_stays_until_the_kopf_process_of_the_pod_has_ended(
    cluster: CandidateCluster, kube: Any, run: Any
) -> None:
    active = cluster.active()

    async def holder() -> str:
        lease = await kube.get(LEASE, cluster.namespace, "fairlead-operator")
        return str(lease["spec"].get("holderIdentity") or "")

    async def stop_while_somebody_acts() -> None:
        async with acting(lock_path(active.socket)):
            active.send(signal.SIGTERM)
            for _ in range(10):
                await asyncio.sleep(0.1)
                assert (await holder()).startswith(active.name)
            code, state = await asyncio.to_thread(active.ask, "GET", "/v1/state")
            assert (code, state["role"]) == (200, "stopping"), "so that it ends, too"
            code, _ = await asyncio.to_thread(active.ask, "GET", f"{cluster.path}/status")
            assert code == 200, "what is under way may be finished"
        assert await asyncio.to_thread(active.process.wait, 60) == 0

    run(stop_while_somebody_acts())
    standby = next(each for each in cluster.candidates if each is not active)
    wait_for(lambda: standby.epoch > 0)
