"""R2 and R4: where epochs end, and what entering or truncating drops."""

import pytest

from fairlead_broker.log.leader_epochs import LeaderEpochs

ENTRIES = [(2, 10), (5, 30), (6, 30 + 5)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (1, 10)),
        (2, (2, 30)),
        (3, (2, 30)),
        (5, (5, 35)),
        (6, (6, 40)),
        (7, (-1, -1)),
    ],
)
def test_end_offset_for(epoch: int, expected: tuple[int, int]) -> None:
    """R2."""
    assert LeaderEpochs(ENTRIES).end_offset_for(epoch, 40) == expected


def test_an_empty_cache_knows_nothing() -> None:
    assert LeaderEpochs().end_offset_for(0, 40) == (-1, -1)
    assert LeaderEpochs().last_epoch == -1


@pytest.mark.parametrize(
    ("epoch", "start", "left"),
    [
        (7, 40, [*ENTRIES, (7, 40)]),
        (7, 35, [(2, 10), (5, 30), (7, 35)]),
        (7, 30, [(2, 10), (7, 30)]),
        (5, 33, [(2, 10), (5, 33)]),
        (4, 40, [(2, 10), (4, 40)]),
        (6, 36, ENTRIES),
    ],
)
def test_entering_an_epoch_drops_what_it_contradicts(
    epoch: int, start: int, left: list[tuple[int, int]]
) -> None:
    epochs = LeaderEpochs(ENTRIES)
    assert epochs.assign(epoch, start) == (left != ENTRIES)
    assert epochs.entries() == left
    assert epochs.is_dirty == (left != ENTRIES)


def test_an_epoch_without_records_is_found() -> None:
    epochs = LeaderEpochs()
    epochs.assign(1, 0)
    epochs.assign(2, 8)
    assert epochs.end_offset_for(2, 8) == (2, 8)
    assert epochs.end_offset_for(1, 8) == (1, 8)


@pytest.mark.parametrize(
    ("end", "left"), [(36, ENTRIES), (35, ENTRIES[:2]), (30, ENTRIES[:1]), (5, [])]
)
def test_truncation_from_the_end(end: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_end(end)
    assert epochs.entries() == left


@pytest.mark.parametrize(
    ("start", "left"),
    [(5, ENTRIES), (10, ENTRIES), (20, [(2, 20), *ENTRIES[1:]]), (32, [(5, 32), (6, 35)])],
)
def test_truncation_from_the_start_keeps_the_spanning_epoch(
    start: int, left: list[tuple[int, int]]
) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_start(start)
    assert epochs.entries() == left


def test_epoch_of_an_offset() -> None:
    epochs = LeaderEpochs(ENTRIES)
    assert [epochs.epoch_of(offset) for offset in (9, 10, 29, 30, 34, 35, 99)] == [
        -1,
        2,
        2,
        5,
        5,
        6,
        6,
    ]


@pytest.mark.parametrize(
    ("offset", "left"), [(10, ENTRIES), (11, ENTRIES[1:]), (35, ENTRIES[2:]), (36, [])]
)
def test_what_started_below_is_forgotten_with_the_epoch_that_spans_it(
    offset: int, left: list[tuple[int, int]]
) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.forget_started_below(offset)
    assert epochs.entries() == left
    assert epochs.is_dirty == (left != ENTRIES)
