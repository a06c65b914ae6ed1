from dataclasses import replace
from typing import Any

import msgpack
import pytest

from fairlead_model.cluster import (
    AclChanged,
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRegistration,
    BrokerRemoved,
    Change,
    ClientQuotaChanged,
    CredentialChanged,
    Endpoint,
    FeaturesChanged,
    GroupConfigsChanged,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicOrigin,
    TopicRemoved,
    TopicState,
)
from fairlead_model.codec import (
    CodecError,
    decode_changes,
    decode_registration,
    encode_change,
    encode_changes,
    encode_registration,
)
from fairlead_model.features import UNSAID_FEATURES, FeatureRange, FinalizedFeatures
from fairlead_model.ids import TopicId
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_model.security.scram import ScramCredential, ScramMechanism
from fairlead_model.session.session_protocol import OPTIONAL_MARK

TOPIC_ID = TopicId(bytes(range(16)))
RULE = AclBinding(
    ResourceType.TOPIC,
    PatternType.PREFIXED,
    "\u00e4 b",
    "User:alice",
    "10.0.0.1",
    Operation.READ,
    Permission.DENY,
)
SHA_512 = ScramMechanism.SCRAM_SHA_512
CREDENTIAL = ScramCredential(SHA_512, 8192, b"s" * 20, b"k" * 64, b"v" * 64)
PAIR = (("user", "\u00e4/*"), ("client-id", None))
QUOTAS = ClientQuotaChanged(PAIR, {"producer_byte_rate": 1024.0, "of a newer release": 0.5})

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
            features=(FeatureRange("f", 1, 3),),
            allows_unclean_election=True,
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
    GroupConfigsChanged("a group", {"a": "b"}),
    FeaturesChanged(FinalizedFeatures(4, {"f": 2}, "0.9")),
    AclChanged(RULE),
    AclChanged(RULE, is_removed=True),
    CredentialChanged("alice", SHA_512, CREDENTIAL),
    CredentialChanged("alice", SHA_512, None),
    QUOTAS,
    ClientQuotaChanged(PAIR, {}),
)


def through_msgpack(value: object) -> Any:
    return msgpack.unpackb(msgpack.packb(value), strict_map_key=False)


def test_changes_survive_the_way_through_msgpack() -> None:
    assert decode_changes(through_msgpack(encode_changes(CHANGES))) == CHANGES


@pytest.mark.parametrize(
    "change",
    [
        GroupConfigsChanged("g", {"a": "b"}),
        FeaturesChanged(FinalizedFeatures(1, {})),
        AclChanged(RULE),
        CredentialChanged("alice", SHA_512, CREDENTIAL),
        QUOTAS,
    ],
)
def test_a_broker_of_an_older_release_skips_what_it_does_not_know(change: Change) -> None:
    assert encode_change(change)[0].startswith(OPTIONAL_MARK)


@pytest.mark.parametrize("length", [0, 31, 65])
def test_a_credential_that_is_wrong_is_refused_without_being_shown(length: int) -> None:
    wrong = replace(CREDENTIAL, stored_key=b"q" * length)
    with pytest.raises(CodecError) as caught:
        decode_changes(through_msgpack([encode_change(CredentialChanged("u", SHA_512, wrong))]))
    assert "qqq" not in str(caught.value)


def test_a_rule_with_an_operation_of_another_release_is_not_skipped() -> None:
    # It may be one that denies.
    value = encode_change(AclChanged(RULE))
    value[-2] = 99
    with pytest.raises(CodecError, match="99"):
        decode_changes([value])


WRONG: list[Any] = [
    None,
    {},
    [None],
    [[]],
    [["x", 1]],
    [["-b"]],
    [["-t"]],
    [["c", ""]],
    [["b", 1, 1]],
    [["b", 1, 1, [["CLIENT", "h"]]]],
    [["t", "t", TOPIC_ID, 1]],
    [["p", TOPIC_ID, 0, [1], [1], 1, 1]],
    [["-b", -1]],
    [["-b", True]],
    [["-b", "1"]],
    [["-b", 2**63]],
    [["-t", b"short"]],
    [["-t", "a" * 16]],
    [["c", "", {"a": 1}]],
    [["c", "", []]],
    [["c", "x" * 40_000, {}]],
    [["?features", 1, {"f": -1}]],
    [["?features", 1, {"f": 2**15}]],
    [["?features", 1, [["f", 1]]]],
]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(CodecError):
        decode_changes(value)


def test_a_broker_whose_id_the_protocol_cannot_carry_is_refused() -> None:
    """Once registered it would be in every answer to Metadata, and none could be encoded."""
    highest = BrokerRegistration(2**31 - 1, min_insync_replicas=2**31 - 1)
    assert decode_registration(encode_registration(highest)) == highest
    for wrong in (replace(highest, broker_id=2**31), replace(highest, min_insync_replicas=2**31)):
        with pytest.raises(CodecError, match="2147483648"):
            decode_registration(encode_registration(wrong))


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_every_field_is_checked(number: int) -> None:
    good = through_msgpack(encode_changes([CHANGES[number]]))[0]
    for position in range(1, len(good)):
        broken = [*good]
        broken[position] = 1.5
        with pytest.raises(CodecError):
            decode_changes([broken])


def test_a_partition_that_breaks_its_rules_is_refused() -> None:
    change = PartitionChanged(TOPIC_ID, 0, PartitionRegistration((1,), (1,), leader=2))
    with pytest.raises(CodecError, match="leader"):
        decode_changes(through_msgpack(encode_changes([change])))


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_fields_of_a_newer_release_are_ignored(number: int) -> None:
    (good,) = through_msgpack(encode_changes([CHANGES[number]]))
    if good[0] == "b":
        good[3] = [[*endpoint, "more"] for endpoint in good[3]]
    assert decode_changes([[*good, {"new": 1}, None]]) == (CHANGES[number],)


def test_fields_that_an_older_release_lacks_have_the_defaults_of_the_model() -> None:
    # Of a broker that does not say which features it supports, the least is believed.
    older = BrokerRegistration(7, 3, (Endpoint("CLIENT", "h", 1),), features=UNSAID_FEATURES)
    (broker, topic, partition) = encode_changes(
        (
            BrokerChanged(older),
            TopicChanged(TopicHeader("t", TOPIC_ID, 1)),
            PartitionChanged(TOPIC_ID, 0, PartitionRegistration((1, 2), (1,), 1, 4, 5)),
        )
    )
    least = [[*broker[:3], [broker[3][0][:3]]], topic[:5], partition[:8]]
    assert decode_changes(through_msgpack(least)) == (
        BrokerChanged(older),
        TopicChanged(TopicHeader("t", TOPIC_ID, 1)),
        PartitionChanged(TOPIC_ID, 0, PartitionRegistration((1, 2), (1,), 1, 4, 5)),
    )
    for whole, shortest in zip((broker, topic, partition), least, strict=True):
        for length in range(len(shortest), len(whole)):
            assert decode_changes([whole[:length]]) == decode_changes([whole])


def test_only_optional_kinds_are_skipped() -> None:
    skipped: list[str] = []
    known = encode_changes([BrokerRemoved(7)])
    assert decode_changes([["?note", 1], *known], skipped.append) == (BrokerRemoved(7),)
    assert skipped == ["?note"]
    with pytest.raises(CodecError, match="'note', which this release does not know"):
        decode_changes([*known, ["note", 1]], skipped.append)
