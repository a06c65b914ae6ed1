"""What queries say to a group, byte by byte, and what its leader gives to whom."""

import pytest

from fairlead_broker.group.subscription import subscribed_topics
from fairlead_spark.group.group_membership import (
    Claim,
    Instance,
    MalformedError,
    assign,
    decode_assignment,
    decode_claim,
    encode_assignment,
    encode_claim,
    read_instance,
)
from fairlead_spark.offsets import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def claim(*partitions: TopicPartition, since_ms: int = 0) -> Claim:
    return Claim(frozenset(partitions), since_ms)


@pytest.mark.parametrize("each", [claim(), claim(A0, A1, B0, since_ms=1_700_000_000_000)])
def test_a_claim_is_read_as_it_was_written(each: Claim) -> None:
    assert decode_claim(encode_claim(each)) == each


def test_a_claim_is_a_subscription_of_version_1() -> None:
    assert encode_claim(claim(A1, since_ms=5)) == bytes.fromhex(
        "0001 00000001 0001 6100000008 000000000000000500000001 0001 61 00000001 00000001"
    )


def test_coordinators_see_the_topics() -> None:
    assert subscribed_topics(encode_claim(claim(A0, B0))) == frozenset({"a", "b"})


def test_an_assignment_is_read_as_it_was_written() -> None:
    assert decode_assignment(encode_assignment([A0, B0, A1])) == {A0, A1, B0}
    assert decode_assignment(b"") == frozenset()


@pytest.mark.parametrize("cut", range(len(encode_claim(claim(A0, B0)))))
def test_what_ends_too_early_is_no_claim(cut: int) -> None:
    with pytest.raises(MalformedError):
        decode_claim(encode_claim(claim(A0, B0))[:cut])


@pytest.mark.parametrize(
    "metadata",
    [
        "0001 7fffffff 0001 61",
        "0001 00000001 ffff",
        "0001 00000001 0001 ff 00000008 0000000000000005 00000000",
        # A consumer without user data.
        "0001 00000001 0001 61 ffffffff 00000000",
    ],
)
def test_what_others_write_is_no_claim(metadata: str) -> None:
    with pytest.raises(MalformedError):
        decode_claim(bytes.fromhex(metadata))


def test_members_get_what_they_ask_for() -> None:
    assert assign({"x": claim(A0), "y": claim(A1, B0)}) == {"x": {A0}, "y": {A1, B0}}


def test_of_two_that_ask_for_the_same_the_later_one_gets_it() -> None:
    claims = {"old": claim(A0, B0, since_ms=5), "new": claim(A0, A1, since_ms=6)}
    assert assign(claims) == {"old": {B0}, "new": {A0, A1}}


@pytest.mark.parametrize(
    ("text", "instance"),
    [
        ("fairlead-spark.0a1b.17", Instance("0a1b", 17)),
        (str(Instance("driver", 4)), Instance("driver", 4)),
        ("fairlead-spark.17", None),
        ("fairlead-spark.0a1b.x", None),
        ("kafka-connect.0a1b.17", None),
        ("", None),
        (None, None),
    ],
)
def test_members_that_are_queries(text: str | None, instance: Instance | None) -> None:
    assert read_instance(text) == instance
