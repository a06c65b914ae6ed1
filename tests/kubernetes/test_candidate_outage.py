"""The API server is away: metadata is frozen, leaders serve on, and nobody acts without a Lease."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from drill_settings import allowed_ms
from live_candidates import CandidateCluster, create_topic, produce, wait_for
from severed_api import SeveredApi

from fairlead_kube.kinds import LEASE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kubernetes


def wait_renewed(kube: Any, run: Any, namespace: str) -> None:
    """Wait until the holder has just renewed its Lease."""

    def renewed() -> str:
        lease = run(kube.get(LEASE, namespace, "fairlead-operator"))
        return str(lease["spec"]["renewTime"])

    before = renewed()
    wait_for(lambda: renewed() != before)


def test_the_holder_ends_when_its_lease_is_over_and_brokers_serve_on(
    tmp_path: Path, namespace: str, kube: Any, run: Any
) -> None:
    with SeveredApi(tmp_path) as api, CandidateCluster(tmp_path, namespace) as cluster:
        cluster.environment["KUBECONFIG"] = str(api.kubeconfig)
        run(cluster.declare(kube))
        for number in range(2):
            cluster.start_candidate(number)
        for node_id in range(3):
            cluster.start_broker(node_id).wait_ready()
        create_topic(cluster.bootstrap, "t")
        active = cluster.active()
        standby = next(each for each in cluster.candidates if each is not active)
        # Who has renewed late, as on a busy machine, would end soon after the cut.
        wait_renewed(kube, run, namespace)

        cut_at = time.monotonic()
        api.cut()
        assert active.process.wait(60) == 3, active.last_words()
        ended_s = time.monotonic() - cut_at
        print(f"\nthe API away: the holder ended after {ended_s:.2f} s")
        assert 1.0 < ended_s < allowed_ms(2500) / 1000
        restarted = cluster.start_candidate(cluster.candidates.index(active))
        wait_for(lambda: time.monotonic() > cut_at + 5)
        assert (standby.role, restarted.role) == ("standby", "standby")
        assert standby.get("/healthz")[0] == 200, "a restart would not bring the API back"
        produce(cluster.bootstrap, "t")

        mended_at = time.monotonic()
        api.mend()
        wait_for(lambda: cluster.active().metric("fairlead_controller_sessions") == 3)
        print(f"the API back: somebody reigned {time.monotonic() - mended_at:.2f} s later")
        produce(cluster.bootstrap, "t")
        create_topic(cluster.bootstrap, "u")


def test_a_short_outage_is_not_noticed(tmp_path: Path, namespace: str, kube: Any, run: Any) -> None:
    with SeveredApi(tmp_path) as api, CandidateCluster(tmp_path, namespace) as cluster:
        cluster.environment["KUBECONFIG"] = str(api.kubeconfig)
        run(cluster.declare(kube))
        active = cluster.start_candidate(0)
        wait_for(lambda: active.epoch == 1)
        # Right after a renewal, so that a busy machine may take its time over the next one.
        wait_renewed(kube, run, namespace)
        cut_at = time.monotonic()
        api.cut()
        wait_for(lambda: time.monotonic() > cut_at + 0.8)
        api.mend()
        wait_for(lambda: time.monotonic() > cut_at + 5)
        assert (active.role, active.epoch) == ("active", 1)
