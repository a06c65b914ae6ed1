"""DescribeCluster, DescribeTopicPartitions, DescribeLogDirs, FindCoordinator, InitProducerId."""

import random
import re
import struct
import time
from array import array
from operator import mul
from typing import Any

import pytest

from fairlead_broker.coordinator.coordinator_partition import coordinator_partition, java_hash
from fairlead_broker.handlers.topics import describe_topic_partitions
from fairlead_broker.limits import COORDINATOR_KEYS_LENGTH_MAX
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.describe_cluster import DescribeClusterRequest
from fairlead_wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from fairlead_wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from fairlead_wire.messages.find_coordinator import FindCoordinatorRequest
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest
from fairlead_wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_cluster_and_its_living_brokers(stage: Any, version: int) -> None:
    stage.neighbour(2, rack="r")
    stage.neighbour(3, fenced=True)
    reply = stage.ask(DescribeClusterRequest(), version)
    assert (reply.error_code, reply.cluster_id, reply.controller_id) == (0, "test-cluster", 1)
    assert [(b.broker_id, b.host, b.port, b.rack) for b in reply.brokers] == [
        (1, "broker-1", 9093, None),
        (2, "broker-2", 9094, "r"),
    ]


def test_brokers_out_of_service_are_told_to_who_asks(stage: Any) -> None:
    stage.neighbour(2)
    stage.neighbour(3, fenced=True)
    reply = stage.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(b.broker_id, b.host, b.port, b.is_fenced) for b in reply.brokers] == [
        (1, "broker-1", 9093, False),
        (2, "broker-2", 9094, False),
        (3, "broker-3", 9095, True),
    ]
    assert reply.controller_id == 1


def test_a_fenced_broker_names_another_as_controller(stage: Any) -> None:
    stage.neighbour(1, fenced=True)
    stage.neighbour(3)
    stage.neighbour(2)
    assert stage.ask(DescribeClusterRequest(), 0).controller_id == 2


@pytest.mark.parametrize(
    ("kind", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_this_is_no_controllers_listener(stage: Any, kind: int, code: ErrorCode) -> None:
    assert stage.ask(DescribeClusterRequest(endpoint_type=kind), 1).error_code == code


@pytest.mark.parametrize(("asked_ms", "waited_ms"), [(0, 30_000), (-1, 30_000), (5, 5)])
def test_who_asks_what_moves_and_names_no_time_out_waits(
    stage: Any, asked_ms: int, waited_ms: int
) -> None:
    reply = stage.ask(ListPartitionReassignmentsRequest(timeout_ms=asked_ms), 0)
    assert reply.error_code == ErrorCode.REQUEST_TIMED_OUT
    found = re.fullmatch(r"no controller after (\d+) ms", reply.error_message)
    # What this process has used up itself comes off.
    assert found is not None and waited_ms - 1000 < int(found[1]) <= waited_ms


def describe(stage: Any, *names: str, limit: int = 2000, cursor: Any = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    return stage.ask(request, 0)


def test_pages_of_partitions_follow_one_another(stage: Any) -> None:
    for name in ("b", "a", "c"):
        stage.topic(name, partitions=3)
    seen = []
    cursor = None
    for _ in range(20):
        reply = describe(stage, limit=2, cursor=cursor)
        page = [(t.name, p.partition_index) for t in reply.topics for p in t.partitions]
        assert len(page) <= 2
        seen += page
        if reply.next_cursor is None:
            break
        cursor = RequestCursor(
            topic_name=reply.next_cursor.topic_name,
            partition_index=reply.next_cursor.partition_index,
        )
    assert seen == [(name, index) for name in "abc" for index in range(3)]


def test_pages_sort_all_names_once(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To sort 50,000 names for each of their pages takes longer than the pages."""
    sorts: list[int] = []

    def noted(names: Any) -> list[str]:
        sorts.append(1)
        return sorted(names)

    monkeypatch.setattr(describe_topic_partitions, "sorted", noted, raising=False)
    for name in ("b", "a", "c"):
        stage.topic(name)
    for first in "abc":
        reply = describe(stage, limit=1, cursor=RequestCursor(first, 0))
        assert [topic.name for topic in reply.topics] == [first]
    assert len(sorts) == 1
    stage.topic("bb")
    reply = describe(stage, limit=9, cursor=RequestCursor("b", 0))
    assert [topic.name for topic in reply.topics] == ["b", "bb", "c"]
    assert len(sorts) == 2


@pytest.mark.parametrize(("name", "index"), [("t", -1), ("another", 0)])
def test_a_cursor_that_no_reply_has_given_is_refused(stage: Any, name: str, index: int) -> None:
    stage.topic("t", partitions=3)
    (topic,) = describe(stage, "t", cursor=RequestCursor(name, index)).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.INVALID_REQUEST, [])


def test_unknown_and_illegal_topics_are_listed_with_their_error(stage: Any) -> None:
    stage.topic("t")
    reply = describe(stage, "t", "missing", "a b")
    assert {topic.name: topic.error_code for topic in reply.topics} == {
        "t": 0,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize("version", range(1, 5))
def test_the_log_directory_with_all_replicas(stage: Any, version: int) -> None:
    stage.topic("t", partitions=2)
    stage.append("t", b"a" * 100)
    (result,) = stage.ask(DescribeLogDirsRequest(topics=None), version).results
    assert (result.error_code, result.log_dir) == (0, str(stage.directory))
    (topic,) = result.topics
    sizes = [partition.partition_size for partition in topic.partitions]
    assert (topic.name, sizes[1]) == ("t", 0)
    assert sizes[0] > 100
    if version >= 4:
        assert result.total_bytes >= result.usable_bytes > 0


def test_the_log_directory_with_the_replicas_asked_for(stage: Any) -> None:
    stage.topic("t", partitions=3)
    asked = [DescribableLogDirTopic(topic="t", partitions=[2, 9])]
    (result,) = stage.ask(DescribeLogDirsRequest(topics=asked), 2).results
    assert [partition.partition_index for partition in result.topics[0].partitions] == [2]


def test_the_hash_is_that_of_java() -> None:
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("polygenelubricants") == -(2**31)
    assert java_hash("\N{GRINNING FACE}") == 0xD83D * 31 + 0xDE00
    assert coordinator_partition("polygenelubricants", 50) == 0


@pytest.mark.parametrize("length", [1, 2, 255, 511, 512, 513, 1_024, 5_000, 40_000])
def test_the_hash_of_a_text_of_any_length_is_that_of_its_definition(length: int) -> None:
    chance = random.Random(length)
    for letters in ((97, 255, 0x4E00, 0x1F600), (0xFFFF,), (0x10FFFF,), (0xD83D, 0xDE00)):
        text = "".join(chr(chance.choice(letters)) for _ in range(length))
        expected = 0
        for unit in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
            expected = (expected * 31 + unit[0]) % 2**32
        assert java_hash(text) % 2**32 == expected
        assert -(2**31) <= java_hash(text) < 2**31


def test_a_request_with_the_longest_names_keeps_others_waiting_only_for_a_moment() -> None:
    """They took a tenth of a second; a Python loop for each character would take longer still."""

    def cost_s(text: str) -> float:
        began_s = time.process_time()
        java_hash(text)
        return time.process_time() - began_s

    names = "g" * COORDINATOR_KEYS_LENGTH_MAX
    units = array("H", names.encode("utf-16-le"))
    powers = [pow(31, 511, 1 << 32)] * len(units)

    def plain_s() -> float:
        began_s = time.process_time()
        sum(map(mul, units, powers))
        return time.process_time() - began_s

    assert min(cost_s(names) for _ in range(5)) * 2 < min(plain_s() for _ in range(5))


def test_names_of_groups_are_bounded_in_length_all_together(stage: Any) -> None:
    names = [f"{number:030000}" for number in range(COORDINATOR_KEYS_LENGTH_MAX // 30_000)]
    found = stage.ask(FindCoordinatorRequest(coordinator_keys=names), 4)
    assert len(found.coordinators) == len(names)
    with pytest.raises(RemoteProtocolError, match="names keys of 2100000 characters"):
        stage.ask(FindCoordinatorRequest(coordinator_keys=[*names, "a" * 30_000]), 4)


@pytest.mark.parametrize("version", range(5))
def test_the_coordinator_is_the_leader_of_the_groups_partition(stage: Any, version: int) -> None:
    stage.neighbour(2)
    stage.topic("__consumer_offsets", partitions=50, replicas=(2,), leader=2)
    request = FindCoordinatorRequest()
    if version >= 4:
        request.coordinator_keys = ["g", "h"]
    else:
        request.key = "g"
    reply = stage.ask(request, version)
    found = reply.coordinators[0] if version >= 4 else reply
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 2, "broker-2", 9094)
    if version >= 4:
        assert [coordinator.key for coordinator in reply.coordinators] == ["g", "h"]


def test_the_first_question_has_the_internal_topic_made(stage: Any) -> None:
    stage.controller.script["create_topics"] = lambda body: {
        "topics": [{"name": body["topics"][0]["name"], "error_code": 0, "error_message": None}]
    }
    reply = stage.ask(FindCoordinatorRequest(key="g"), 3)
    assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    ((method, body),) = stage.controller.calls
    assert (method, body["internal"]) == ("create_topics", True)
    (topic,) = body["topics"]
    assert (topic["name"], topic["partitions"]) == ("__consumer_offsets", 50)
    assert topic["configs"]["cleanup.policy"] == "compact"


def test_a_coordinator_without_a_leader_is_not_available(stage: Any) -> None:
    stage.topic("__consumer_offsets", partitions=50)
    stage.change("__consumer_offsets", coordinator_partition("g", 50), leader=-1)
    reply = stage.ask(FindCoordinatorRequest(key="g"), 3)
    assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", range(1, 6))
def test_the_coordinator_of_a_transactional_id_leads_its_partition(
    stage: Any, version: int
) -> None:
    stage.neighbour(2)
    stage.topic("__transaction_state", partitions=50, replicas=(2,), leader=2)
    stage.change("__transaction_state", coordinator_partition("other", 50), leader=-1)
    request = FindCoordinatorRequest(key_type=1)
    if version >= 4:
        request.coordinator_keys = ["x"]
    else:
        request.key = "x"
    reply = stage.ask(request, version)
    found = reply.coordinators[0] if version >= 4 else reply
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 2, "broker-2", 9094)


@pytest.mark.parametrize(
    "stage", [{"transaction.state.log.replication.factor": "1"}], indirect=True
)
def test_the_first_transactional_id_has_its_topic_made_as_kafka_makes_it(stage: Any) -> None:
    reply = stage.ask(FindCoordinatorRequest(key="x", key_type=1), 3)
    assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    ((method, body),) = stage.controller.calls
    assert (method, body["internal"]) == ("create_topics", True)
    (topic,) = body["topics"]
    assert (topic["name"], topic["partitions"]) == ("__transaction_state", 50)
    assert topic["configs"] == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_coordinators_of_another_kind_are_refused_for_good(stage: Any) -> None:
    reply = stage.ask(FindCoordinatorRequest(key="x", key_type=5), 3)
    assert (reply.error_code, ErrorCode.INVALID_REQUEST.retriable) == (42, False)
    assert reply.error_message


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_come_from_a_block_of_the_controller(stage: Any, version: int) -> None:
    blocks = iter(range(1000, 9000, 1000))
    stage.controller.script["allocate_producer_ids"] = lambda _: {
        "first_producer_id": next(blocks),
        "count": 2,
    }
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    given = [stage.ask(request, version) for _ in range(3)]
    assert [reply.producer_id for reply in given] == [1000, 1001, 2000]
    assert {(reply.error_code, reply.producer_epoch) for reply in given} == {(0, 0)}


def test_without_a_controller_a_producer_tries_again(stage: Any) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    code = ErrorCode(stage.ask(request, 4).error_code)
    assert code.retriable


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 3)])
def test_half_of_an_identity_is_refused(stage: Any, producer_id: int, epoch: int) -> None:
    request = InitProducerIdRequest(None, 1, producer_id, epoch)
    assert stage.ask(request, 4).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("transactional_id", "code"),
    [("x", ErrorCode.NOT_COORDINATOR), ("", ErrorCode.INVALID_REQUEST)],
)
def test_a_transactional_producer_asks_its_coordinator(
    stage: Any, transactional_id: str, code: ErrorCode
) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1)
    reply = stage.ask(request, 4)
    assert (reply.error_code, reply.producer_id) == (code, -1)
