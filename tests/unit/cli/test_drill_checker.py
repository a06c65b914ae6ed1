"""The drill's checker catches servers that lose, duplicate or reorder, each shown by hand."""

import random

import pytest

from fairlead_cli.drill.checker import EXAMPLES_MAX, Findings, check
from fairlead_cli.drill.history import (
    FoundRecord,
    History,
    decode_value,
    encode_value,
)


def send(count: int, *, key: str = "k", partition: int = 0) -> History:
    """`count` records of one key, all acknowledged at offsets 0, 1, 2, …"""
    history = History()
    writer = history.add_key(key, partition)
    for _ in range(count):
        sequence = writer.note_sent()
        writer.note_acknowledged(sequence, sequence)
    return history


def found(*sequences: int, key: str = "k", partition: int = 0) -> list[FoundRecord]:
    return [
        FoundRecord(partition, offset, key, sequence) for offset, sequence in enumerate(sequences)
    ]


def wrong(findings: Findings) -> dict[str, int]:
    names = ("lost", "duplicated", "reordered", "misplaced", "foreign")
    return {name: getattr(findings, name) for name in names if getattr(findings, name)}


def test_a_server_that_keeps_everything_is_clean() -> None:
    findings = check(send(5), found(0, 1, 2, 3, 4))
    assert findings.is_clean
    assert (findings.sent, findings.acknowledged, findings.found) == (5, 5, 5)
    assert findings.examples == []


@pytest.mark.parametrize("missing", [0, 2, 4])
def test_an_acknowledged_record_that_is_gone_is_lost(missing: int) -> None:
    records = [record for record in found(0, 1, 2, 3, 4) if record.sequence != missing]
    findings = check(send(5), records)
    assert wrong(findings) == {"lost": 1}
    assert not findings.is_clean
    assert f"k number {missing} was acknowledged at offset {missing}" in findings.examples[0]


def test_a_truncated_tail_is_lost_record_by_record() -> None:
    assert wrong(check(send(100), found(*range(60)))) == {"lost": 40}


def test_a_whole_partition_that_vanished_is_lost() -> None:
    assert wrong(check(send(7), [])) == {"lost": 7}


def test_a_record_twice_is_duplicated() -> None:
    history = send(3)
    findings = check(history, [*found(0, 1, 2), FoundRecord(0, 3, "k", 1)])
    assert wrong(findings) == {"duplicated": 1}
    assert findings.examples == ["partition 0 offset 3: k number 1 is also at offset 1"]


def test_a_whole_batch_twice_counts_each_record() -> None:
    history = send(6)
    again = [FoundRecord(0, 6 + i, "k", i) for i in range(3, 6)]
    assert wrong(check(history, [*found(*range(6)), *again])) == {"duplicated": 3}


def test_an_earlier_record_behind_a_later_one_is_reordered() -> None:
    history = History()
    writer = history.add_key("k", 0)
    for sequence, offset in ((0, 0), (1, 2), (2, 1)):
        assert writer.note_sent() == sequence
        writer.note_acknowledged(sequence, offset)
    findings = check(history, found(0, 2, 1))
    assert wrong(findings) == {"reordered": 1}
    assert findings.examples == ["partition 0 offset 2: k number 1 comes behind number 2"]


def test_a_record_at_another_offset_than_promised_is_misplaced() -> None:
    """As when a log was truncated and written again with the same records."""
    records = [FoundRecord(0, offset + 1, "k", offset) for offset in range(3)]
    assert wrong(check(send(3), records)) == {"misplaced": 3}


def test_a_record_in_another_partition_is_misplaced() -> None:
    assert wrong(check(send(1), found(0, partition=4))) == {"misplaced": 1}


def test_records_that_nobody_sent_are_foreign() -> None:
    records = [*found(0, 1), FoundRecord(0, 2, "k", 2), FoundRecord(0, 3, "stranger", 0)]
    assert wrong(check(send(2), records)) == {"foreign": 2}


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    history = History()
    writer = history.add_key("k", 0)
    for _ in range(4):
        writer.note_sent()
    writer.note_acknowledged(0, 0)
    writer.note_refused(1)
    writer.note_acknowledged(3, 1)
    assert check(history, found(0, 3)).is_clean
    assert (history.sent, history.acknowledged, history.refused) == (4, 2, 1)
    history.keys["k"].note_acknowledged(3, 3)
    assert check(history, found(0, 1, 2, 3)).is_clean


def test_what_was_not_acknowledged_must_still_be_in_order_and_single() -> None:
    history = History()
    writer = history.add_key("k", 0)
    for _ in range(3):
        writer.note_sent()
    assert wrong(check(history, found(1, 0, 2, 2))) == {"reordered": 1, "duplicated": 1}


@pytest.mark.parametrize("offset", [-1, None])
def test_an_acknowledgement_without_offset_is_a_promise_too(offset: int | None) -> None:
    history = History()
    writer = history.add_key("k", 0)
    writer.note_acknowledged(writer.note_sent(), offset)
    assert history.acknowledged == 1
    assert check(history, found(0)).is_clean
    assert wrong(check(history, [])) == {"lost": 1}


def test_keys_are_judged_one_by_one() -> None:
    history = send(2, key="a")
    other = history.add_key("b", 1)
    other.note_acknowledged(other.note_sent(), 0)
    mixed = [FoundRecord(1, 0, "b", 0), *found(0, 1, key="a")]
    assert check(history, mixed).is_clean
    with pytest.raises(ValueError, match="two writers"):
        history.add_key("a", 0)


def test_the_report_is_bounded() -> None:
    findings = check(send(1000), [])
    assert findings.lost == 1000
    assert len(findings.examples) == EXAMPLES_MAX


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_is_always_noticed(seed: int) -> None:
    """Whatever one change does to a correct log, the checker is not content with the result."""
    chance = random.Random(seed)
    history = History()
    logs: dict[int, list[tuple[str, int]]] = {0: [], 1: []}
    writers = [history.add_key(f"k{i}", i % 2) for i in range(4)]
    for _ in range(200):
        writer = chance.choice(writers)
        log = logs[writer.partition]
        sequence = writer.note_sent()
        writer.note_acknowledged(sequence, len(log))
        log.append((writer.key, sequence))

    def read() -> list[FoundRecord]:
        return [
            FoundRecord(partition, offset, key, sequence)
            for partition, log in logs.items()
            for offset, (key, sequence) in enumerate(log)
        ]

    assert check(history, read()).is_clean
    log = logs[chance.randrange(2)]
    at = chance.randrange(len(log) - 1)
    match seed % 3:
        case 0:
            del log[at]
        case 1:
            log.insert(chance.randrange(len(log)), log[at])
        case _:
            log[at], log[at + 1] = log[at + 1], log[at]
    assert not check(history, read()).is_clean


def test_a_value_names_itself() -> None:
    value = encode_value("w3", 12345, 100)
    assert len(value) == 100
    assert decode_value(value) == ("w3", 12345)
    assert decode_value(encode_value("w3", 7, 1)) == ("w3", 7)
    for damaged in (b"", b"w3", b"w3:x:", value[:-1] + b"!", b"w3:12345"):
        with pytest.raises(ValueError, match="not a record"):
            decode_value(damaged)
