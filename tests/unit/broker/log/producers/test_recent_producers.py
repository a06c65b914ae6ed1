"""Which snapshots of producers are kept in memory, and which of them counts."""

from fairlead_broker.log.producers.recent_producers import RecentProducers, RecentSnapshot


def noted(*offsets: int) -> RecentProducers:
    recent = RecentProducers()
    for offset in offsets:
        recent.note(offset, b"at %d" % offset)
    return recent


def kept(recent: RecentProducers) -> list[int]:
    found, end = [], 1_000
    while (snapshot := recent.newest(0, end)) is not None:
        assert snapshot == RecentSnapshot(snapshot.offset, b"at %d" % snapshot.offset)
        found.append(snapshot.offset)
        end = snapshot.offset - 1
    return found


def test_the_newest_few_are_kept() -> None:
    assert kept(noted(10, 20, 30, 40)) == [40, 30, 20]
    assert kept(noted(10, 10)) == [10]
    assert kept(noted(20, 30, 10)) == [10], "the log was cut, and has grown again"


def test_one_outside_of_the_log_does_not_count() -> None:
    recent = noted(10, 20, 30)
    assert recent.newest(0, 9) is None
    assert recent.newest(11, 19) is None
    assert recent.newest(10, 10) == RecentSnapshot(10, b"at 10")


def test_a_cut_and_a_compaction_forget_theirs() -> None:
    recent = noted(10, 20, 30)
    recent.forget_above(20)
    assert kept(recent) == [20, 10]
    recent.forget_up_to(10)
    assert kept(recent) == [20]
