"""Golden bytes of message bodies, and what the encoders and decoders refuse."""

import struct
from typing import Any

import pytest

from fairlead_broker.limits import (
    MEMBER_PARTITIONS_MAX,
    MEMBER_TOPICS_MAX,
    OFFSETS_PER_FETCH_MAX,
)
from fairlead_wire import primitives
from fairlead_wire.errors import LocalProtocolError, RemoteProtocolError
from fairlead_wire.message import Message
from fairlead_wire.messages import FLEXIBLE_FROM, REQUESTS, RESPONSES, VALID_VERSIONS
from fairlead_wire.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from fairlead_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from fairlead_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from fairlead_wire.messages.delete_topics import DeleteTopicsRequest
from fairlead_wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    ReplicaState,
)
from fairlead_wire.messages.heartbeat import HeartbeatRequest
from fairlead_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fairlead_wire.primitives import ELEMENTS_MAX, NULL_UUID


def body(message: Message, version: int) -> bytes:
    return b"".join(message.encode(version))  # type: ignore[arg-type]


def decode(kind: type[Message], text: str, version: int) -> Message:
    raw = bytes.fromhex(text)
    message, position = kind.decode(memoryview(raw), 0, version)
    assert position == len(raw)
    return message


def test_null_and_empty_arrays_differ() -> None:
    everything, nothing = MetadataRequest(None), MetadataRequest([])
    assert body(everything, 1) == bytes.fromhex("ffffffff")
    assert body(nothing, 1) == bytes.fromhex("00000000")
    assert body(everything, 9) == bytes.fromhex("00 01 00 00 00")
    assert body(nothing, 9) == bytes.fromhex("01 01 00 00 00")
    assert decode(MetadataRequest, "00 01 00 00 00", 9) == everything
    assert decode(MetadataRequest, "01 01 00 00 00", 9) == nothing


def test_null_is_refused_where_the_version_does_not_know_it() -> None:
    with pytest.raises(RemoteProtocolError, match=r"MetadataRequest\.topics is null"):
        decode(MetadataRequest, "ffffffff", 0)
    with pytest.raises(LocalProtocolError, match="None, which version 0 does not allow"):
        MetadataRequest(None).encode(0)
    with pytest.raises(LocalProtocolError, match=r"MetadataRequestTopic\.name is None"):
        MetadataRequest([MetadataRequestTopic(name=None)]).encode(9)
    with pytest.raises(RemoteProtocolError, match=r"HeartbeatRequest\.group_id is null"):
        decode(HeartbeatRequest, "ffff 00000000 0000", 0)
    with pytest.raises(RemoteProtocolError, match=r"HeartbeatRequest\.group_id is null"):
        decode(HeartbeatRequest, "00 00000000 01 00 00", 4)


def test_only_minus_one_is_null() -> None:
    with pytest.raises(RemoteProtocolError, match="null or has a negative length"):
        decode(MetadataRequest, "fffffffe", 1)


TAGGED = ApiVersionsResponse(
    supported_features=[SupportedFeatureKey("a", 1, 2)], finalized_features_epoch=5
)
TAGGED_BYTES = "0000 01 00000000 02 00 08 02 02 61 0001 0002 00 01 08 0000000000000005"


def test_tagged_fields_are_written_in_order_and_only_when_they_say_something() -> None:
    assert body(TAGGED, 3) == bytes.fromhex(TAGGED_BYTES)
    assert decode(ApiVersionsResponse, TAGGED_BYTES, 3) == TAGGED
    assert body(ApiVersionsResponse(), 3) == bytes.fromhex("0000 01 00000000 00")


def test_unknown_tags_are_skipped() -> None:
    message = decode(ApiVersionsResponse, "0000 01 00000000 02 03 01 01 63 03 aabbcc", 3)
    assert message == ApiVersionsResponse(zk_migration_ready=True)


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ("02 03 01 01 03 01 01", "tag 3 after tag 3"),
        ("02 05 00 03 01 01", "tag 3 after tag 5"),
        ("01 63 05 00", "behind the end"),
        ("01 63 ffffffff0f", "behind the end"),
        ("7f", "127 tagged fields"),
        ("ffffffff0f", "tagged fields"),
        ("01 03 02 01 00", "not the size"),
        ("01 01 07 00000000000000", "not the size|malformed|cut off"),
        ("ffffffffff00", "more than five bytes"),
        ("ffffffff7f", "above 32 bits"),
    ],
)
def test_damaged_tag_sections_are_refused(section: str, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        decode(ApiVersionsResponse, f"0000 01 00000000 {section}", 3)


def test_a_tagged_struct_is_none_when_all_is_default() -> None:
    silent = PartitionData(3, high_watermark=9)
    spoken = PartitionData(3, high_watermark=9, current_leader=LeaderIdAndEpoch(2, 7))
    explicit = PartitionData(3, high_watermark=9, current_leader=LeaderIdAndEpoch())
    encodings = [
        body(FetchResponse(responses=[FetchableTopicResponse("t", partitions=[each])]), 12)
        for each in (silent, spoken, explicit)
    ]
    assert encodings[0] == encodings[2] != encodings[1]
    decoded = [FetchResponse.decode(memoryview(each), 0, 12)[0] for each in encodings]
    assert decoded[0].responses[0].partitions[0].current_leader is None
    assert decoded[1].responses[0].partitions[0].current_leader == LeaderIdAndEpoch(2, 7)


def test_what_a_version_cannot_carry_is_refused_unless_it_may_be_ignored() -> None:
    with pytest.raises(LocalProtocolError, match=r"FetchRequest\.replica_state is set"):
        FetchRequest(replica_state=ReplicaState(1, 5)).encode(12)
    with pytest.raises(LocalProtocolError, match=r"CreateTopicsRequest has no version 1"):
        CreateTopicsRequest().encode(1)
    assert body(ProduceResponse(throttle_time_ms=5), 3) == bytes.fromhex("00000000 00000005")
    with_rack = FetchRequest(rack_id="a")
    assert body(with_rack, 4) == body(FetchRequest(), 4)


@pytest.mark.parametrize(
    "message",
    [
        HeartbeatRequest(group_id="x" * 32768),
        HeartbeatRequest(group_id="\ud800"),
        HeartbeatRequest(group_id=None),  # type: ignore[arg-type]
        HeartbeatRequest(generation_id=2**31),
        HeartbeatRequest(generation_id="1"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_values_that_do_not_fit_are_our_own_error(message: HeartbeatRequest, version: int) -> None:
    with pytest.raises(LocalProtocolError):
        message.encode(version)


def test_topic_ids_have_16_bytes() -> None:
    wrong = ProduceRequest(topic_data=[TopicProduceData(topic_id=b"short")])
    with pytest.raises(LocalProtocolError, match="not 16 bytes"):
        wrong.encode(13)


def test_unknown_versions_are_the_peers_error_when_decoding() -> None:
    with pytest.raises(RemoteProtocolError, match="ProduceRequest has no version 2"):
        ProduceRequest.decode(memoryview(b""), 0, 2)


@pytest.mark.parametrize("version", [1, 9])
def test_claimed_counts_are_checked_before_anything_is_made(version: int) -> None:
    with pytest.raises(RemoteProtocolError, match=r"MetadataRequest\.topics claims"):
        MetadataRequest.decode(memoryview(b"\x7f\xff\xff\xff" + bytes(20)), 0, version)


def encoded(message: Message, version: int) -> memoryview:
    return memoryview(body(message, version))


def delete_topics(count: int) -> memoryview:
    """DeleteTopics v1 of empty names: two bytes an element."""
    return memoryview(struct.pack(">i", count) + bytes(2 * count) + struct.pack(">i", 1000))


def test_a_request_of_very_many_elements_is_refused_before_they_are_made() -> None:
    request, _ = DeleteTopicsRequest.decode(delete_topics(ELEMENTS_MAX), 0, 1)
    assert len(request.topic_names) == ELEMENTS_MAX, "each request is counted by itself"
    with pytest.raises(RemoteProtocolError, match="a request of more than 150000 elements"):
        DeleteTopicsRequest.decode(delete_topics(ELEMENTS_MAX + 1), 0, 1)


def test_elements_are_counted_over_all_arrays_of_a_request(monkeypatch: Any) -> None:
    monkeypatch.setattr(primitives, "ELEMENTS_MAX", 20)
    partitions = [PartitionProduceData(index) for index in range(5)]

    def produce(topic_count: int) -> memoryview:
        topics = [TopicProduceData("t", partition_data=partitions)] * topic_count
        return encoded(ProduceRequest(topic_data=topics), 9)

    ProduceRequest.decode(produce(3), 0, 9)
    with pytest.raises(RemoteProtocolError, match="elements"):
        ProduceRequest.decode(produce(4), 0, 9)


def test_the_only_element_of_an_array_counts_too(monkeypatch: Any) -> None:
    """Otherwise each element of a long array might have a chain of others below it."""
    monkeypatch.setattr(primitives, "ELEMENTS_MAX", 20)

    def create(topic_count: int) -> memoryview:
        assignment, config = CreatableReplicaAssignment(0, [0]), CreatableTopicConfig("a", "b")
        topic = CreatableTopic("t", -1, -1, [assignment], [config])
        return encoded(CreateTopicsRequest([topic] * topic_count), 7)

    CreateTopicsRequest.decode(create(6), 0, 7)
    with pytest.raises(RemoteProtocolError, match="elements"):
        CreateTopicsRequest.decode(create(7), 0, 7)


def test_eight_numbers_count_as_one_element(monkeypatch: Any) -> None:
    monkeypatch.setattr(primitives, "ELEMENTS_MAX", 20)

    def fetch(partition_count: int) -> memoryview:
        topic = OffsetFetchRequestTopics("t", partition_indexes=list(range(partition_count)))
        return encoded(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[topic])]), 8)

    OffsetFetchRequest.decode(fetch(18 * 8 + 7), 0, 8)
    with pytest.raises(RemoteProtocolError, match="elements"):
        OffsetFetchRequest.decode(fetch(19 * 8), 0, 8)


@pytest.mark.parametrize("each", [1, 2, 8, OFFSETS_PER_FETCH_MAX])
def test_what_a_handler_takes_can_be_decoded(each: int) -> None:
    topics = [
        OffsetFetchRequestTopics("t", partition_indexes=[0] * each)
        for _ in range(OFFSETS_PER_FETCH_MAX // each)
    ]
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])
    OffsetFetchRequest.decode(encoded(fetch, 9), 0, 9)
    owned = [
        RequestTopicPartitions(NULL_UUID, [0] * each) for _ in range(MEMBER_PARTITIONS_MAX // each)
    ]
    names = ["t"] * MEMBER_TOPICS_MAX
    heartbeat = ConsumerGroupHeartbeatRequest(
        "g", subscribed_topic_names=names, topic_partitions=owned
    )
    ConsumerGroupHeartbeatRequest.decode(encoded(heartbeat, 1), 0, 1)


def test_tagged_fields_count_as_elements(monkeypatch: Any) -> None:
    monkeypatch.setattr(primitives, "ELEMENTS_MAX", 20)

    def metadata(topic_count: int, tag_count: int) -> memoryview:
        tags = bytes((tag_count,)) + b"".join(bytes((tag, 0)) for tag in range(tag_count))
        topic = b"\x02t" + tags
        return memoryview(bytes((topic_count + 1,)) + topic * topic_count + bytes(4))

    MetadataRequest.decode(metadata(5, 3), 0, 9)
    with pytest.raises(RemoteProtocolError, match="elements"):
        MetadataRequest.decode(metadata(5, 4), 0, 9)


def test_no_struct_has_very_many_tagged_fields() -> None:
    tags = b"".join(bytes((tag, 0)) for tag in range(101))
    with pytest.raises(RemoteProtocolError, match="101 tagged fields"):
        MetadataRequest.decode(memoryview(bytes((1, 0, 0, 0, 101)) + tags), 0, 9)


class Source:
    """Records that lie elsewhere."""

    def __len__(self) -> int:
        return 20


def fetch_response(records: object) -> FetchResponse:
    partition = PartitionData(0, records=records)  # type: ignore[arg-type]
    return FetchResponse(responses=[FetchableTopicResponse("t", partitions=[partition])])


@pytest.mark.parametrize("version", [4, 11, 12, 16])
@pytest.mark.parametrize("records", [Source(), bytes(5000), memoryview(bytes(9000))])
def test_records_pass_through_the_encoder_uncopied(version: int, records: object) -> None:
    segments = fetch_response(records).encode(version)
    assert len(segments) == 3
    assert segments[1] is records
    inline = body(fetch_response(bytes(len(records))), version)
    assert segments[0] + bytes(len(segments[1])) + segments[2] == inline  # type: ignore[operator]


def test_small_records_are_joined_with_their_neighbours() -> None:
    assert len(fetch_response(b"small").encode(12)) == 1


def test_decoded_records_are_slices_of_the_frame() -> None:
    frame = bytearray(
        body(
            ProduceRequest(
                topic_data=[
                    TopicProduceData("t", partition_data=[PartitionProduceData(0, b"records")])
                ]
            ),
            9,
        )
    )
    request, _ = ProduceRequest.decode(memoryview(frame), 0, 9)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert not records.readonly
    assert records.obj is frame


def test_messages_compare_by_fields_and_print_payloads_by_size() -> None:
    data = PartitionProduceData(1, bytes(500))
    assert data == PartitionProduceData(1, memoryview(bytes(500)))
    assert data != PartitionProduceData(2, bytes(500))
    assert data != TopicProduceData()
    assert repr(data) == "PartitionProduceData(index=1, records=<500 bytes>)"
    with pytest.raises(TypeError):
        hash(data)


def test_the_tables_agree_with_the_classes() -> None:
    assert set(REQUESTS) == set(RESPONSES) == set(VALID_VERSIONS)
    assert len(REQUESTS) == len(list(REQUESTS))
    for key in REQUESTS:
        for message in (REQUESTS[key], RESPONSES[key]):
            assert key == message.API_KEY
            assert VALID_VERSIONS[key] == message.VALID_VERSIONS
            assert FLEXIBLE_FROM.get(key) == message.FLEXIBLE_FROM
    assert 4 not in REQUESTS
    with pytest.raises(KeyError):
        REQUESTS[4]
