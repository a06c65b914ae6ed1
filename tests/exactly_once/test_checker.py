"""The checker reports each kind of error; the parser applies markers as Kafka does."""

import struct
from collections.abc import Callable
from itertools import islice

import google_crc32c
import pytest
from checker import Findings, Found, check_output, compare
from segment_files import ABORT, COMMIT, HEADER, DamagedError, decide, read_batches
from workload import copies_of, counts_of, make_inputs

INPUTS = list(islice(make_inputs(7), 400))
COPIES = copies_of(INPUTS)


def good_output() -> list[Found]:
    """Return records in two partitions; after every tenth record a marker has an offset."""
    found, offsets = [], [0, 0]
    for key, values in COPIES.items():
        partition = int(key[1:]) % 2
        for value in values:
            found.append(Found(partition, offsets[partition], key, value))
            offsets[partition] += 1 + (offsets[partition] % 10 == 9)
    return sorted(found)


def findings_of(found: list[Found]) -> Findings:
    findings = Findings()
    check_output(COPIES, found, findings)
    return findings


def test_a_right_output_is_right() -> None:
    assert not findings_of(good_output())
    assert str(findings_of(good_output())) == "nothing"
    assert sum(map(len, COPIES.values())) == len(INPUTS)


def test_counts_rise_by_one() -> None:
    counts = counts_of(INPUTS)
    assert sum(map(len, counts.values())) == 3 * len(INPUTS)
    assert counts[b"w00"][:3] == [b"1", b"2", b"3"]


def lose(found: list[Found]) -> list[Found]:
    return found[:50] + found[51:]


def double(found: list[Found]) -> list[Found]:
    return sorted([*found, found[50]._replace(offset=10**6)])


def double_at_once(found: list[Found]) -> list[Found]:
    return sorted([*found, found[50]])


def show_aborted(found: list[Found]) -> list[Found]:
    return [*found[:50], found[50]._replace(value=b"doomed " + found[50].value), *found[50:]]


def swap(found: list[Found]) -> list[Found]:
    one, other = found[50], found[51]
    assert one.key == other.key
    swapped = [one._replace(value=other.value), other._replace(value=one.value)]
    return [*found[:50], *swapped, *found[52:]]


def transform_wrongly(found: list[Found]) -> list[Found]:
    return [*found[:50], found[50]._replace(value=b"0 00000000"), *found[51:]]


def move(found: list[Found]) -> list[Found]:
    return sorted([*found[:50], found[50]._replace(partition=1 - found[50].partition), *found[51:]])


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (lose, "lost"),
        (double, "twice"),
        (double_at_once, "twice"),
        (show_aborted, "aborted"),
        (swap, "misplaced"),
        (transform_wrongly, "foreign"),
        (move, "misplaced"),
    ],
)
def test_what_is_wrong_is_named(
    break_it: Callable[[list[Found]], list[Found]], complaint: str
) -> None:
    findings = findings_of(break_it(good_output()))
    assert findings
    assert getattr(findings, complaint), findings


@pytest.mark.parametrize("break_it", [lose, double, double_at_once, show_aborted, swap])
def test_readings_that_differ_are_named(break_it: Callable[[list[Found]], list[Found]]) -> None:
    findings = Findings()
    compare(good_output(), break_it(good_output()), "live and again", findings)
    assert findings.changed
    same = Findings()
    compare(good_output(), good_output(), "live and again", same)
    assert not same


def batch(  # the fields that matter here
    base: int, records: list[tuple[bytes, bytes]], *, pid: int = 1, epoch: int = 0, flags: int = 16
) -> bytes:
    body = b""
    for index, (key, value) in enumerate(records):
        fields = bytes((0, 0, 2 * index, 2 * len(key))) + key + bytes((2 * len(value),)) + value
        body += bytes((2 * (len(fields) + 1),)) + fields + b"\0"
    count = len(records)
    checked = struct.pack(">hiqqqhii", flags, count - 1, 0, 0, pid, epoch, -1, count) + body
    crc = google_crc32c.value(checked)
    return struct.pack(">qiibI", base, len(checked) + 9, 0, 2, crc) + checked


def marker(base: int, kind: int, *, pid: int = 1, epoch: int = 0) -> bytes:
    record = (struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return batch(base, [record], pid=pid, epoch=epoch, flags=48)


def test_the_next_marker_of_a_producer_decides() -> None:
    log = (
        batch(0, [(b"a", b"1"), (b"a", b"2")], pid=1)
        + batch(2, [(b"b", b"1")], pid=2)
        + marker(3, ABORT, pid=2, epoch=1)
        + batch(4, [(b"a", b"3")], pid=1)
        + marker(5, COMMIT, pid=1)
        + batch(6, [(b"c", b"1")], pid=-1, flags=0)
        + batch(7, [(b"a", b"4")], pid=1)
        + b"\0" * 200
    )
    found = decide(read_batches(log, "log"))
    assert [record.offset for record in found.committed] == [0, 1, 4, 6]
    assert [(record.offset, record.key) for record in found.aborted] == [(2, b"b")]
    assert list(found.open) == [1]
    assert (found.committed_count, found.aborted_count, found.breaches) == (1, 1, [])


def test_breaches_are_named() -> None:
    old = batch(0, [(b"a", b"1")]) + marker(1, ABORT, epoch=1) + batch(2, [(b"a", b"1")])
    assert "old producer epoch" in decide(read_batches(old, "log")).breaches[0]
    back = batch(5, [(b"a", b"1")]) + batch(5, [(b"a", b"2")])
    assert "offset 5 comes after 5" in decide(read_batches(back, "log")).breaches[0]
    damaged = bytearray(batch(0, [(b"a", b"1")]))
    damaged[-2] ^= 1
    with pytest.raises(DamagedError, match="offset 0"):
        list(read_batches(bytes(damaged), "log"))
    assert HEADER.size == 61
