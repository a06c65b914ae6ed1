"""A problem that lasts is one Event, however long its message is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_kube.kinds import BROKER_POOL, LOG_CLUSTER
from fairlead_operator.clusters import status_writer
from fairlead_operator.clusters.status import ClusterFacts
from fairlead_operator.clusters.status_writer import StatusWriter
from fairlead_operator.drills.status import DrillStatus
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.resources.condition import MESSAGE_LENGTH_MAX

PROBLEM = "; ".join(f"spec.config.unknown.setting.{number}: there is none" for number in range(40))


@pytest.mark.parametrize("kind", [LOG_CLUSTER, BROKER_POOL], ids=lambda kind: str(kind.kind))
def test_a_long_message_is_told_once(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    """As of a LogCluster into which somebody has pasted a whole server.properties."""
    assert len(PROBLEM) > MESSAGE_LENGTH_MAX
    monkeypatch.setattr(status_writer, "INTERVAL_S", 0.0)
    told: list[str] = []
    names = {"namespace": "shop", "name": "demo", "uid": "u-1"}
    manifest: dict[str, Any] = {"kind": kind.kind, "metadata": names, "status": {}}

    async def write_status(_kind: Any, _live: Any, status: Any) -> Any:
        manifest["status"] = status
        return status

    async def emit(_object: Any, reason: str, *_: Any) -> None:
        told.append(reason)

    nobody: Any = None
    writer: Any = SimpleNamespace(write_status=write_status)
    events: Any = SimpleNamespace(emit=emit)
    statuses = StatusWriter(LiveObjects(nobody, (), lambda _: None), writer, events)

    async def look() -> None:
        if kind is LOG_CLUSTER:
            facts = ClusterFacts(
                name="demo", namespace="shop", generation=1, problem=("InvalidSpec", PROBLEM)
            )
            await statuses.write_cluster(manifest, facts)
        else:
            await statuses.write_pool_problem(manifest, "InvalidSpec", PROBLEM)

    async def story() -> None:
        for _ in range(3):
            await look()

    asyncio.run(story())
    assert told == ["InvalidSpec"]


def test_a_drill_that_is_held_back_for_a_long_reason_is_written_once() -> None:
    status = DrillStatus({"metadata": {"generation": 1}})
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert [status.hold("Waiting", PROBLEM, now) for _ in range(3)] == [True, False, False]
