from fairlead_operator.event_ledger import (
    OBJECTS_MAX,
    SERIES_IDLE_S,
    WRITES_PER_MINUTE_MAX,
    EventKey,
    EventLedger,
    NewEvent,
    RepeatedEvent,
)


def key(note: str = "broker 1", *, uid: str = "a", reason: str = "BrokerFenced") -> EventKey:
    return EventKey(uid, "Normal", reason, note)


def test_the_same_again_is_counted_and_written_once_a_minute() -> None:
    ledger = EventLedger()
    assert ledger.decide(key(), "first", 0) == NewEvent(left_out=0)
    assert [ledger.decide(key(), "other", second) for second in range(1, 60)] == [None] * 59
    assert ledger.decide(key(), "other", 60) == RepeatedEvent("first", 61)
    assert ledger.decide(key(), "other", 61) is None


def test_after_a_long_silence_it_is_a_new_event() -> None:
    ledger = EventLedger()
    ledger.decide(key(), "first", 0)
    assert ledger.decide(key(), "second", SERIES_IDLE_S + 1) == NewEvent(left_out=0)


def test_an_object_has_so_many_events_a_minute_and_the_next_says_what_was_left_out() -> None:
    ledger = EventLedger()
    for number in range(WRITES_PER_MINUTE_MAX):
        assert ledger.decide(key(f"broker {number}"), "name", 0) == NewEvent(left_out=0)
    assert ledger.decide(key("one more"), "name", 1) is None
    assert ledger.decide(key("another", reason="LeaderElected"), "name", 1) is None
    assert ledger.left_out == 2
    assert ledger.decide(key("later"), "name", 60) == NewEvent(left_out=1)
    assert ledger.decide(key("still later"), "name", 60) == NewEvent(left_out=0)


def test_other_objects_are_not_held_up() -> None:
    ledger = EventLedger()
    for number in range(WRITES_PER_MINUTE_MAX + 1):
        ledger.decide(key(f"broker {number}"), "name", 0)
    assert ledger.decide(key(uid="b"), "name", 0) == NewEvent(left_out=0)


def test_a_forgotten_series_begins_anew() -> None:
    ledger = EventLedger()
    ledger.decide(key(), "first", 0)
    ledger.forget(key())
    assert ledger.decide(key(), "second", 1) == NewEvent(left_out=0)


def test_objects_are_forgotten_oldest_first() -> None:
    ledger = EventLedger()
    for number in range(OBJECTS_MAX):
        ledger.decide(key(uid=str(number)), "name", 0)
    ledger.decide(key(uid="0"), "name", 1)
    ledger.decide(key(uid="one more"), "name", 2)
    assert ledger.decide(key(uid="0"), "name", 3) is None
    assert ledger.decide(key(uid="1"), "name", 3) == NewEvent(left_out=0)
