from typing import Any

import msgpack
import pytest

from fairlead_model.cluster import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRegistration,
    BrokerRemoved,
    Change,
    Endpoint,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicOrigin,
    TopicRemoved,
    TopicState,
)
from fairlead_model.codec import CodecError, decode_changes, encode_changes
from fairlead_model.ids import TopicId
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration

TOPIC_ID = TopicId(bytes(range(16)))
CHANGES: tuple[Change, ...] = (
    BrokerChanged(
        BrokerRegistration(
            broker_id=7,
            broker_epoch=3,
            endpoints=(Endpoint("CLIENT", "h", 9092), Endpoint("INTERNAL", "i", 1, True)),
            host_name="host",
            rack="r",
            fenced=False,
            in_controlled_shutdown=True,
            directory_id="d",
            start_id="s",
            boot_id="b",
            pod_uid="p",
            is_clean=True,
            previous_broker_epoch=2,
            is_recovered_whole=True,
            min_insync_replicas=2,
        )
    ),
    BrokerChanged(BrokerRegistration(0)),
    BrokerRemoved(7),
    TopicChanged(
        TopicHeader(
            "t",
            TOPIC_ID,
            1,
            TopicState.DELETING,
            {"retention.ms": "1"},
            TopicOrigin.RESOURCE,
            "resource",
            "Delete",
            True,
            frozenset({1, 2}),
        )
    ),
    PartitionChanged(
        TOPIC_ID,
        0,
        PartitionRegistration(
            (1, 2, 3, 4),
            (1, 2),
            2,
            5,
            9,
            (3,),
            (4,),
            LeaderRecoveryState.RECOVERING,
            (4,),
            (1,),
            ("a", "b", "c", "d"),
            2,
        ),
    ),
    TopicRemoved(TOPIC_ID),
    BrokerConfigsChanged("", {"a": "b"}),
)


def through_msgpack(value: object) -> Any:
    return msgpack.unpackb(msgpack.packb(value), strict_map_key=False)


def test_changes_survive_the_way_through_msgpack() -> None:
    assert decode_changes(through_msgpack(encode_changes(CHANGES))) == CHANGES


WRONG: list[Any] = [
    None,
    {},
    [None],
    [[]],
    [["x", 1]],
    [["-b"]],
    [["-b", -1]],
    [["-b", True]],
    [["-b", "1"]],
    [["-b", 2**63]],
    [["-t", b"short"]],
    [["-t", "a" * 16]],
    [["c", "", {"a": 1}]],
    [["c", "", []]],
    [["c", "x" * 40_000, {}]],
]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(CodecError):
        decode_changes(value)


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_every_field_is_checked(number: int) -> None:
    good = through_msgpack(encode_changes([CHANGES[number]]))[0]
    for position in range(1, len(good)):
        broken = [*good]
        broken[position] = 1.5
        with pytest.raises(CodecError):
            decode_changes([broken])
    with pytest.raises(CodecError):
        decode_changes([good[:-1]])
    with pytest.raises(CodecError):
        decode_changes([[*good, 1]])


def test_a_partition_that_breaks_its_rules_is_refused() -> None:
    change = PartitionChanged(TOPIC_ID, 0, PartitionRegistration((1,), (1,), leader=2))
    with pytest.raises(CodecError, match="leader"):
        decode_changes(through_msgpack(encode_changes([change])))
