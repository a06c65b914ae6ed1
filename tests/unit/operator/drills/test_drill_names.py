"""A drill whose pod's name, or Secret's, is taken: it ends and says by whom, or waits its turn."""

import asyncio
from typing import Any

import pytest
from fake_drill_world import FakeWorld, manifest, new_runner

from fairlead_kube.errors import ApiError
from fairlead_operator.conditions import find_condition
from fairlead_operator.drills.faults import TargetError

EARLIER = {"kind": "FailoverDrill", "name": "one", "uid": "an earlier drill of this name"}
ANOTHER = {"kind": "FailoverDrill", "name": "one-more", "uid": "a drill of another name"}
JOB = {"kind": "Job", "name": "drill", "uid": "a job"}


class TakenWorld(FakeWorld):
    """There is a pod already of the name that the drill's is to have."""

    def __init__(self, owner: dict[str, str] | None, **metadata: Any) -> None:
        super().__init__(manifest())
        owners = {} if owner is None else {"ownerReferences": [owner]}
        self.pod = {"metadata": {"name": "drill-one", "uid": "p", **owners, **metadata}}

    async def create(self, kind: Any, namespace: str, body: dict[str, Any]) -> None:
        if kind.kind == "Pod" and self.pod is not None:
            raise ApiError(409, "AlreadyExists", 'pods "drill-one" already exists')
        await super().create(kind, namespace, body)


@pytest.mark.parametrize("owner", [None, JOB, ANOTHER])
def test_a_drill_whose_pods_name_is_taken_ends_and_names_the_pod(owner: Any) -> None:
    world = TakenWorld(owner)
    there = world.pod
    asyncio.run(new_runner(world)._step(dict(world.drill)))
    assert world.drill["status"]["phase"] == "Finished"
    complete = find_condition(world.drill["status"]["conditions"], "Complete")
    assert complete is not None
    assert complete["reason"] == "Aborted"
    assert complete["message"] == "the Pod drill-one is not this drill's: delete it"
    (event,) = world.events
    assert event[0] == "DrillFailed"
    asyncio.run(new_runner(world)._step(dict(world.drill)))
    assert world.pod is there, "it is somebody else's"


@pytest.mark.parametrize(
    ("owner", "more"), [(EARLIER, {}), (JOB, {"deletionTimestamp": "2026-01-01T00:00:00Z"})]
)
def test_a_drill_waits_for_a_pod_that_goes_by_itself(owner: Any, more: Any) -> None:
    world = TakenWorld(owner, **more)
    with pytest.raises(TargetError, match="drill-one"):
        asyncio.run(new_runner(world)._step(dict(world.drill)))
    assert world.drill["status"]["phase"] == "Preparing"
    world.pod = None
    asyncio.run(new_runner(world)._step(dict(world.drill)))
    assert (world.pod is not None, world.drill["status"]["phase"]) == (True, "Preparing")
