"""Committed offsets: their bytes, their expiry (R21), and what a replay makes of them."""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_broker.coordinator.record_batching import build_batch, encode_body
from fairlead_broker.coordinator.replay import RECORDS_PER_STEP, Replay
from fairlead_broker.group.group_offsets import (
    GroupOffsets,
    TopicOffsets,
    encode_commit,
    encode_expiring_commit,
    topic_id_of,
)
from fairlead_broker.group.group_replay import GroupReplay
from fairlead_broker.group.group_types import GroupState, Subscriptions
from fairlead_broker.group.records.classic_records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_offset_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)
from fairlead_wire.compression import Codec
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.primitives import NULL_UUID
from fairlead_wire.records import Record, decode_batch, encode_batch

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
RETENTION_MS = 7 * DAY_MS


@given(
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.text(max_size=200),
    st.integers(0, 2**62),
    st.just(NULL_UUID) | st.binary(min_size=16, max_size=16),
)
def test_a_commit_has_the_bytes_of_the_codec(
    offset: int, epoch: int, metadata: str, timestamp_ms: int, topic_id: bytes
) -> None:
    fast = encode_commit(offset, epoch, metadata.encode(), timestamp_ms, topic_id)
    value = OffsetValue(offset, epoch, metadata, timestamp_ms, topic_id=topic_id)
    assert fast == encode_offset_value(value)
    assert decode_offset_value(fast) == value
    assert topic_id_of(fast) == topic_id


def test_a_commit_may_carry_an_expiry_of_its_own() -> None:
    value = decode_offset_value(encode_expiring_commit(5, b"note", 1000, 4000))
    assert value == OffsetValue(5, -1, "note", 1000, 4000)


def test_keys_come_from_one_prefix_a_topic() -> None:
    topic = TopicOffsets("gruppe-ä", "t.1")
    for partition in (0, 7, 70_000):
        assert topic.key(partition) == encode_key(OffsetKey("gruppe-ä", "t.1", partition))


def test_what_is_committed_is_found_until_it_is_removed() -> None:
    offsets = GroupOffsets("g")
    assert not offsets
    offsets.committed("t", 1, encode_commit(10, 3, b"m", 77))
    assert offsets
    assert offsets.find("t", 1) == OffsetValue(10, 3, "m", 77)
    assert offsets.find("t", 0) is None
    assert offsets.find("u", 1) is None
    assert list(offsets.partitions()) == [("t", 1)]
    offsets.removed("t", 1)
    offsets.removed("t", 1)
    assert not offsets
    assert offsets.topics == {}


def group(
    state: GroupState = GroupState.EMPTY,
    *,
    kind: str = "consumer",
    since: int = -1,
    topics: frozenset[str] | None = frozenset(),
) -> Subscriptions:
    known = topics if state is GroupState.STABLE else None
    return Subscriptions(kind, state is GroupState.EMPTY, since, known)


LONG_AGO = NOW_MS - 8 * DAY_MS
LATELY = NOW_MS - 6 * DAY_MS


@pytest.mark.parametrize(
    ("about", "committed_ms", "is_expired"),
    [
        pytest.param(group(since=LONG_AGO), LONG_AGO, True, id="empty for the retention"),
        pytest.param(group(since=LATELY), LONG_AGO, False, id="empty since lately"),
        pytest.param(group(since=LONG_AGO), LATELY, False, id="set by an administrator since"),
        pytest.param(group(), LONG_AGO, True, id="empty, nobody knows since when"),
        pytest.param(group(kind=""), LONG_AGO, True, id="standalone, old"),
        pytest.param(group(kind=""), LATELY, False, id="standalone, young"),
        pytest.param(
            group(GroupState.STABLE, topics=frozenset({"t"})), LONG_AGO, False, id="subscribed"
        ),
        pytest.param(
            group(GroupState.STABLE, topics=frozenset({"u"})), LONG_AGO, True, id="unsubscribed"
        ),
        pytest.param(
            group(GroupState.STABLE, topics=frozenset({"u"})), LATELY, False, id="lately still"
        ),
        pytest.param(group(GroupState.STABLE, topics=None), LONG_AGO, False, id="nobody can tell"),
        pytest.param(
            group(GroupState.PREPARING_REBALANCE, topics=frozenset({"t"})),
            LONG_AGO,
            False,
            id="rebalancing",
        ),
        *(
            # Whoever reads the topic may be about to join.
            pytest.param(
                group(state, topics=frozenset({"u"})), LONG_AGO, False, id=f"not in {state.value}"
            )
            for state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)
        ),
    ],
)
def test_offsets_expire_by_rule_21(
    about: Subscriptions, committed_ms: int, is_expired: bool
) -> None:
    """R21."""
    offsets = GroupOffsets("g")
    offsets.committed("t", 0, encode_commit(1, -1, b"", committed_ms))
    expired = offsets.expired(about, now_ms=NOW_MS, retention_ms=RETENTION_MS)
    assert expired == ([("t", 0)] if is_expired else [])


def test_an_expiry_of_its_own_counts_before_the_retention() -> None:
    offsets = GroupOffsets("g")
    offsets.committed("t", 0, encode_expiring_commit(1, b"", LATELY, NOW_MS))
    offsets.committed("t", 1, encode_expiring_commit(1, b"", LONG_AGO, NOW_MS + 1))
    assert offsets.expired(group(), now_ms=NOW_MS, retention_ms=RETENTION_MS) == [("t", 0)]


BODIES = st.lists(
    st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=3000)), min_size=1, max_size=8
)


@given(BODIES, st.integers(0, 2**60))
def test_a_batch_has_the_bytes_of_the_obvious_encoder(
    records: list[tuple[bytes, bytes | None]], timestamp_ms: int
) -> None:
    fast = build_batch([encode_body(*record) for record in records], timestamp_ms=timestamp_ms)
    obvious = [Record(at, timestamp_ms, *record) for at, record in enumerate(records)]
    assert bytes(fast) == encode_batch(obvious)


def test_a_batch_of_many_records_is_readable() -> None:
    bodies = [encode_body(b"%d" % number, b"v") for number in range(5_000)]
    records = decode_batch(bytes(build_batch(bodies, timestamp_ms=5)))
    assert [record.key for record in records] == [b"%d" % number for number in range(5_000)]


class Replayed(NamedTuple):
    """A log that was read whole, and what it says of groups."""

    log: Replay
    groups: GroupReplay


def read_all(data: bytes) -> Replayed:
    replayed = Replayed(Replay(), GroupReplay())
    exhaust(replayed.log.read(data))
    exhaust(replayed.groups.decode(replayed.log.newest))
    return replayed


def exhaust(steps: Iterator[None]) -> int:
    return sum(1 for _ in steps)


def contents(replay: GroupReplay) -> dict[tuple[str, str, int], OffsetValue | None]:
    return {
        (group_id, topic, partition): offsets.find(topic, partition)
        for group_id, offsets in replay.offsets.items()
        for topic, partition in offsets.partitions()
    }


KEYS = [
    OffsetKey(f"{'g' * size}{number}", f"topic-{number}", number)
    for number in range(3)
    for size in (1, 200)
]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.none() | st.tuples(st.integers(0, 2**62), st.text(max_size=150)),
        st.integers(0, 2**41),
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(EVENTS, st.sampled_from([Codec.NONE, Codec.GZIP, Codec.ZSTD]), st.integers(1, 9))
def test_replay_keeps_what_a_slow_reader_keeps(
    events: list[tuple[OffsetKey, tuple[int, str] | None, int]], codec: Codec, per_batch: int
) -> None:
    records = []
    expected: dict[tuple[str, str, int], OffsetValue] = {}
    for at, (key, commit, timestamp_ms) in enumerate(events):
        if commit is None:
            expected.pop((key[0], key[1], key[2]), None)
            value = None
        else:
            expected[key[0], key[1], key[2]] = OffsetValue(commit[0], 4, commit[1], timestamp_ms)
            value = encode_offset_value(expected[key[0], key[1], key[2]])
        headers = (("source", b"x"),) if at % 3 == 0 else ()
        records.append(Record(at, timestamp_ms, encode_key(key), value, headers))
    data = b"".join(
        encode_batch(records[at : at + per_batch], codec=codec)
        for at in range(0, len(records), per_batch)
    )
    log, replay = read_all(data)
    assert contents(replay) == expected
    assert log.records_count == len(events)
    assert log.next_offset == len(events)
    assert replay.unreadable_count == replay.unknown_count == 0


def test_groups_are_kept_beside_their_offsets() -> None:
    value = encode_group_value(GroupValue("consumer", 3, None, None, 9, ()))
    later = encode_group_value(GroupValue("consumer", 4, None, None, 9, ()))
    records = [
        Record(0, 1, encode_key(GroupKey("g")), value),
        Record(1, 1, encode_key(GroupKey("gone")), value),
        Record(2, 1, encode_key(OffsetKey("gone", "t", 0)), encode_commit(1, 1, b"", 1)),
        Record(3, 1, encode_key(GroupKey("g")), later),
        Record(4, 1, encode_key(GroupKey("gone")), None),
    ]
    _, replay = read_all(encode_batch(records))
    assert replay.group_values == {"g": later}
    assert set(replay.offsets) == {"gone"}


def test_records_of_others_are_counted_and_passed_over() -> None:
    records = [
        Record(0, 1, None, b"no key"),
        Record(1, 1, b"", b"no key either"),
        Record(2, 1, b"\0\1nonsense", b"x"),
        Record(3, 1, encode_key(OffsetKey("g", "t", 0)), b"no offset"),
        Record(4, 1, encode_key(GroupKey("g")), b"no group"),
        Record(5, 1, b"\0\x0b\0\1g", b"of a share group"),
        Record(6, 1, encode_key(OffsetKey("g", "t", 1)), encode_commit(1, 1, b"\xff\xfe", 1)),
        Record(7, 1, encode_key(OffsetKey("g", "t", 2)), encode_commit(1, 1, b"", 1)),
    ]
    _, replay = read_all(encode_batch(records))
    assert list(contents(replay)) == [("g", "t", 2)]
    assert replay.group_values == {}
    assert replay.unknown_count == 1
    assert replay.unreadable_count == 5


def test_damage_is_an_error() -> None:
    batch = bytearray(encode_batch([Record(0, 1, encode_key(GroupKey("g")), None)]))
    batch[-1] ^= 1
    with pytest.raises(RemoteProtocolError, match="CRC"):
        read_all(bytes(batch))


@pytest.mark.parametrize("seed", range(200))
def test_whatever_a_batch_holds_replay_ends(seed: int) -> None:
    """Bodies with flipped bits under a correct CRC: an error or a result, nothing else."""
    chance = random.Random(seed)
    key = encode_key(OffsetKey("group", "topic", 1))
    bodies = [encode_body(key, encode_commit(number, 1, b"", 1)) for number in range(3)]
    at, index = chance.randrange(3), chance.randrange(len(bodies[0]))
    damaged = bytearray(bodies[at])
    damaged[index] ^= 1 << chance.randrange(8)
    bodies[at] = bytes(damaged)
    batch = bytes(build_batch(bodies, timestamp_ms=1))
    try:
        log, _ = read_all(batch)
    except RemoteProtocolError:
        return
    assert log.records_count == 3


def test_long_batches_are_read_in_steps() -> None:
    topic = TopicOffsets("g", "t")
    bodies: Any = [
        encode_body(topic.key(number), encode_commit(number, 1, b"", 1)) for number in range(4_500)
    ]
    log, replay = Replay(), GroupReplay()
    steps = exhaust(log.read(bytes(build_batch(bodies, timestamp_ms=1))))
    assert steps >= 4_500 // RECORDS_PER_STEP
    assert exhaust(replay.decode(log.newest)) >= 4_500 // RECORDS_PER_STEP
    assert len(replay.offsets["g"]) == 4_500


class Unwalked(dict[str, TopicOffsets]):
    """The topics of a group, which may be asked for by name only."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all topics of a group are walked")


def test_a_group_without_what_was_committed_for_a_deleted_topic_is_not_walked() -> None:
    """A broker may have a hundred thousand groups, and asks all of them in one turn of its loop."""
    offsets = GroupOffsets("g")
    for name in ("a", "b"):
        offsets.committed(name, 0, b"v")
    topics, offsets.topics = offsets.topics, Unwalked(offsets.topics)
    assert offsets.topics_among(frozenset({"gone", "c"})) == []
    offsets.topics = topics
    assert offsets.topics_among(frozenset({"gone", "b"})) == ["b"]
    offsets.staged(7, "gone", 0, 1, b"v")
    assert sorted(offsets.topics_among(frozenset({"gone", "b"}))) == ["b", "gone"]
