"""What tools write under `/admin` is read, or found unreadable."""

import json
from pathlib import Path
from typing import Any

import pytest
from decision_world import creatable, create_topics, registration
from run_controller import play

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import (
    AlterReassignments,
    ElectOnRequest,
    Event,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.stores.zookeeper_multis import Fence
from fairlead_controller.zookeeper import admin_requests
from fairlead_controller.zookeeper.admin_requests import (
    AdminRequests,
    _read_partitions,
    _read_targets,
)
from fairlead_model.session.calls import AlterReassignmentsCall
from fairlead_zookeeper.operations import Delete, Stat, Znode
from fairlead_zookeeper.znodes import PREFERRED_ELECTION

READABLE = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}'


def test_entries_of_kafkas_tools_are_read() -> None:
    assert _read_partitions(READABLE) == [{"topic": "t", "index": 0}]
    assert _read_targets(READABLE) == [{"topic": "t", "index": 0, "replicas": [1]}]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"partitions":5}',
        b'{"partitions":[{"topic":"t"}]}',
        b'{"partitions":[{"topic":"t","partition":"x","replicas":[1]}]}',
        b'{"partitions":[{"topic":"t","partition":1e999,"replicas":[1]}]}',
        b'{"partitions":[{"topic":"t","partition":Infinity,"replicas":[1]}]}',
        b'{"partitions":[{"topic":"t","partition":NaN,"replicas":[1]}]}',
    ],
)
def test_what_cannot_be_read_ends_nobody(data: bytes) -> None:
    """An error here ended the reign of each controller, and the entry stayed for the next one."""
    assert _read_partitions(data) is None
    assert _read_targets(data) is None


def test_a_replica_without_bound_cannot_be_read() -> None:
    assert _read_targets(READABLE.replace(b"[1]", b"[1e999]")) is None


class Client:
    """A connection to ZooKeeper of which only what is removed matters."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    async def multi(self, operations: list[Any]) -> None:
        self.removed += [each.path for each in operations if isinstance(each, Delete)]


def test_leaders_of_very_many_partitions_are_elected_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry of 1 MB names 25,000: while the controller decides on them, it hears no broker."""
    monkeypatch.setattr(admin_requests, "PARTITIONS_AT_ONCE", 2)
    monkeypatch.setattr(admin_requests, "NOT_ELECTED_LOGGED_MAX", 1)
    count = 5
    asked: list[int] = []

    async def story(controller: Controller) -> None:
        for broker_id in (0, 1):
            reply = await controller.submit(RegisterBroker(registration(broker_id), ""))
            await controller.submit(UnfenceBroker(broker_id, reply["broker_epoch"]))
        placed = {index: [1, 0] for index in range(count)}
        topic = creatable("t", partitions=-1, replication_factor=-1, assignments=placed)
        await controller.submit(create_topics(topic))
        turned: Any = [{"topic": "t", "index": index, "replicas": [0, 1]} for index in placed]
        call = AlterReassignmentsCall(partitions=turned, allow_replication_factor_change=True)
        await controller.submit(AlterReassignments(call))

        submit = controller.submit

        async def noted(event: Event) -> Any:
            assert isinstance(event, ElectOnRequest)
            asked.append(len(event.call["partitions"] or ()))
            return await submit(event)

        monkeypatch.setattr(controller, "submit", noted)
        client: Any = Client()
        store: Any = None
        requests = AdminRequests(client, store, controller, Fence(1, 1))
        places = [("t", index) for index in range(count)] + [("gone", 0), ("gone", 1), ("t", 0)]
        partitions = [{"topic": topic, "partition": index} for topic, index in places]
        data = json.dumps({"version": 1, "partitions": partitions}).encode()
        await requests._elect(Znode(data, Stat(0, 1, 1, 0)))
        records = [controller.committed.image.partition("t", index) for index in range(count)]
        assert [record and record.leader for record in records] == [0] * count
        assert client.removed == [PREFERRED_ELECTION]

    play(tmp_path, story)
    assert asked == [2, 2, 2, 2]
    said = [record.getMessage() for record in caplog.records if record.name.endswith("requests")]
    assert said == [
        f"{PREFERRED_ELECTION}: gone-0: No such topic as gone",
        f"{PREFERRED_ELECTION}: and 1 more partitions",
    ]
