"""What is left out of lists of groups for who may not see it, and that nobody is denied by that."""

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest
from group_cluster import NO_DELAY, GroupCluster, run
from replica_cluster import ReplicaCluster

from fairlead_broker.authorization import ANONYMOUS
from fairlead_broker.group.consumer_protocol import encode_assignment
from fairlead_broker.handlers import in_turns
from fairlead_broker.rest.calls import KafkaCalls
from fairlead_broker.rest.group_reading import committed_offsets, describe_group, list_groups
from fairlead_broker.rest.problems import ProblemError
from fairlead_broker.rest.slices import Slices
from fairlead_broker.security.standard_authorizer import StandardAuthorizer
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_wire.errors import KafkaError
from fairlead_wire.messages.list_groups import ListGroupsResponse
from fairlead_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

DEADLINE_S = 30.0
SEEN = AclBinding(
    ResourceType.GROUP,
    PatternType.LITERAL,
    "seen",
    "User:ANONYMOUS",
    "*",
    Operation.DESCRIBE,
    Permission.ALLOW,
)


class Request:
    """As much of an HTTP request as these questions need."""

    def __init__(self, kafka: KafkaCalls) -> None:
        self.kafka, self.broker = kafka, kafka.broker
        self.path = {"consumer_group_id": "seen"}
        self.deadline_s = asyncio.get_running_loop().time() + DEADLINE_S
        self.slices = Slices()


def test_very_many_groups_are_listed_by_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is encoded for Kafka's clients while others are served is a list of groups here."""
    monkeypatch.setattr(in_turns, "DESCRIBED_A_TURN", 100)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            for number in range(101):
                groups.coordinator().ensure(f"g{number}")

            class Host:
                broker = cluster.members[1].broker
                listener = peers = None
                tasks: ClassVar[set[Any]] = set()

            host: Any = Host()
            request: Any = Request(KafkaCalls(host, "h", ANONYMOUS, None))
            assert len(await list_groups(request)) == 101

    run(story())


def test_what_is_left_out_of_a_list_is_no_denial(tmp_path: Path) -> None:
    denied: list[Any] = []
    authorizer = StandardAuthorizer((), allows_without_rules=False)
    authorizer.load([SEEN])
    authorizer.on_denied = lambda question, _: denied.append(question)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            join = groups.join("seen")
            await cluster.until(lambda: join.reply is not None)
            member = member_id, generation = join.reply.member_id, join.reply.generation_id
            given = SyncGroupRequestAssignment(member_id, encode_assignment(1, {"t": [0]}))
            await groups.ask(
                SyncGroupRequest("seen", generation, member_id, assignments=[given]), 3
            )
            await groups.committed("seen", 7, member=member)
            await groups.committed("hidden", 7)

            class Host:
                broker = cluster.members[1].broker
                listener = peers = None

            host: Any = Host()
            request: Any = Request(KafkaCalls(host, "h", ANONYMOUS, authorizer))
            (listed,) = await list_groups(request)
            assert (listed.group_id, [each.partitions for each in listed.members]) == ("seen", [()])
            assert await describe_group(request) == listed
            assert await committed_offsets(request, "seen") == {}
            assert denied == []
            # Who names what may not be seen is denied.
            request.path = {"consumer_group_id": "hidden"}
            with pytest.raises(KafkaError):
                await describe_group(request)
            assert [question[-1] for question in denied] == ["hidden"]
            # And who may see everything, is shown it.
            request = Request(KafkaCalls(host, "h", ANONYMOUS, None))
            assert [each.group_id for each in await list_groups(request)] == ["hidden", "seen"]
            assert (await describe_group(request)).members[0].partitions == (("t", 0),)
            assert await committed_offsets(request, "seen") == {("t", 0): 7}

    run(story())


def test_who_loses_a_right_while_another_broker_is_waited_for_is_not_shown_the_group(
    tmp_path: Path,
) -> None:
    authorizer = StandardAuthorizer((), allows_without_rules=False)
    other = SEEN._replace(name="other")
    topic = SEEN._replace(resource_type=ResourceType.TOPIC, name="t")
    authorizer.load([SEEN, other, topic])

    class Peers:
        async def ask(self, *_: Any) -> ListGroupsResponse:
            authorizer.load([other])
            return ListGroupsResponse()

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=2, **NO_DELAY) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("seen", 7)
            join = groups.join("other")
            await cluster.until(lambda: join.reply is not None)
            member_id, generation = join.reply.member_id, join.reply.generation_id
            given = SyncGroupRequestAssignment(member_id, encode_assignment(1, {"t": [0]}))
            await groups.ask(
                SyncGroupRequest("other", generation, member_id, assignments=[given]), 3
            )

            class Host:
                broker = cluster.members[1].broker
                listener, peers = None, Peers()

            host: Any = Host()
            request: Any = Request(KafkaCalls(host, "h", ANONYMOUS, authorizer))
            (listed,) = await list_groups(request)
            assert (listed.group_id, [each.partitions for each in listed.members]) == (
                "other",
                [()],
            )

    run(story())


def test_a_broker_without_the_consumer_protocol_describes_its_groups(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**NO_DELAY, "group_coordinator_rebalance_protocols": "classic"}

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **settings) as cluster:
            groups = GroupCluster(cluster)
            await groups.ready()
            await groups.committed("seen", 7)

            class Host:
                broker = cluster.members[1].broker
                listener = peers = None

            host: Any = Host()
            request: Any = Request(KafkaCalls(host, "h", ANONYMOUS, None))
            assert (await describe_group(request)).is_simple
            request.path = {"consumer_group_id": "nobody"}
            with pytest.raises(ProblemError) as caught:
                await describe_group(request)
            assert caught.value.status == 404

    run(story())
