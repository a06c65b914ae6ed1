"""The pod of a drill that has ended: deleted once, and a node that is gone is told of."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from fake_drill_world import FakeWorld, manifest, new_runner


class SlowWorld(FakeWorld):
    """A drill has ended; its pod takes its time to end, as each pod of Kubernetes does."""

    def __init__(self) -> None:
        super().__init__(manifest(schedule="0 3 * * *"))
        self.drill["status"] = {"phase": "Finished", "endedAt": "2026-01-01T03:10:00Z"}
        owner = {"kind": "FailoverDrill", "name": "one", "uid": self.drill["metadata"]["uid"]}
        self.pod = {
            "metadata": {
                "name": "drill-one",
                "uid": "uid-of-the-pod",
                "creationTimestamp": "2026-01-01T03:00:00Z",
                "ownerReferences": [owner],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1"},
        }
        self.deletions: list[str | None] = []

    async def delete(self, kind: Any, *_where: str, uid: str | None = None) -> None:
        assert kind.kind == "Pod"
        self.deletions.append(uid)
        self.is_ending_by(datetime.now(UTC) + timedelta(seconds=60))

    def is_ending_by(self, moment: datetime) -> None:
        assert self.pod is not None
        self.pod["metadata"]["deletionTimestamp"] = f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def test_a_pod_that_is_ending_is_not_deleted_again() -> None:
    world = SlowWorld()

    async def go() -> None:
        runner = new_runner(world)
        for _ in range(3):
            await runner._step(dict(world.drill))
        assert await runner._attend(("ns", "one"), dict(world.drill)), "it is checked again soon"

    asyncio.run(go())
    assert world.deletions == ["uid-of-the-pod"]
    assert world.events == []


def test_a_pod_whose_node_is_gone_is_told_of_with_what_removes_it() -> None:
    world = SlowWorld()
    world.is_ending_by(datetime.now(UTC) - timedelta(minutes=5))
    asyncio.run(new_runner(world)._step(dict(world.drill)))
    assert world.deletions == []
    ((reason, message),) = world.events
    assert reason == "PodNotEnding"
    assert "`kubectl delete pod drill-one --grace-period=0 --force`" in message
