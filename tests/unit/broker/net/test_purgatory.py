"""Parked operations leave exactly once: completed, expired or forgotten."""

import random

import pytest

from fairlead_broker.replication.purgatory import Purgatory


class Waiting:
    """An operation that completes when told to."""

    def __init__(self) -> None:
        self.is_ready = False
        self.outcome: list[str] = []

    def try_complete(self) -> bool:
        if self.is_ready:
            self.outcome.append("completed")
        return self.is_ready

    def on_expire(self) -> None:
        self.outcome.append("expired")

    def on_fault(self) -> None:
        self.outcome.append("given up")


class Broken(Waiting):
    """An operation that raises what none should."""

    def try_complete(self) -> bool:
        raise RuntimeError("it is broken")

    def on_expire(self) -> None:
        raise RuntimeError("it is broken")


@pytest.fixture
def purgatory() -> Purgatory:
    return Purgatory(operations_max=1000, keys_max=5000)


def test_completes_once_though_it_waits_for_several_keys(purgatory: Purgatory) -> None:
    waiting = Waiting()
    purgatory.park(waiting, [("a", 0), ("a", 1), ("a", 0)], 100)
    assert purgatory.keys_count == 2
    assert purgatory.check([("a", 0), ("b", 0)]) == 0
    waiting.is_ready = True
    assert purgatory.check([("a", 1), ("a", 0)]) == 1
    assert purgatory.expire(1000) == 0
    assert waiting.outcome == ["completed"]
    assert len(purgatory) == purgatory.keys_count == 0


def test_is_asked_once_however_many_of_its_keys_advanced(purgatory: Purgatory) -> None:
    class Counting(Waiting):
        asked = 0

        def try_complete(self) -> bool:
            self.asked += 1
            return super().try_complete()

    waiting = Counting()
    keys = [("a", index) for index in range(1000)]
    purgatory.park(waiting, keys, 100)
    purgatory.check(keys)
    assert waiting.asked == 1


def test_expires_at_its_deadline_and_not_before(purgatory: Purgatory) -> None:
    early, late = Waiting(), Waiting()
    purgatory.park(late, [("a", 0)], 200)
    purgatory.park(early, [("a", 0)], 100)
    assert purgatory.next_deadline_ms() == 100
    assert purgatory.expire(99) == 0
    assert purgatory.expire(100) == 1
    assert (early.outcome, late.outcome) == (["expired"], [])
    assert purgatory.next_deadline_ms() == 200


def test_cancelled_is_never_told_anything(purgatory: Purgatory) -> None:
    waiting = Waiting()
    parked = purgatory.park(waiting, [("a", 0)], 100)
    assert parked is not None
    parked.cancel()
    parked.cancel()
    waiting.is_ready = True
    purgatory.check([("a", 0)])
    purgatory.expire(100)
    assert waiting.outcome == []
    assert purgatory.next_deadline_ms() is None


@pytest.mark.parametrize("is_late", [False, True])
def test_one_that_is_broken_hurts_nobody_beside_it(purgatory: Purgatory, *, is_late: bool) -> None:
    purgatory.on_fault = lambda operation: operation.on_fault()
    broken, waiting = Broken(), Waiting()
    waiting.is_ready = True
    for operation in (broken, waiting):
        purgatory.park(operation, [("a", 0)], 100)
    if is_late:
        assert purgatory.expire(100) == 2
    else:
        assert purgatory.check([("a", 0)]) == 1
    assert (broken.outcome, waiting.outcome) == (
        ["given up"],
        ["expired" if is_late else "completed"],
    )
    assert len(purgatory) == purgatory.keys_count == 0


def test_where_nobody_is_told_of_faults_they_are_raised(purgatory: Purgatory) -> None:
    """So that a simulation ends with them."""
    purgatory.park(Broken(), [("a", 0)], 100)
    with pytest.raises(RuntimeError, match="broken"):
        purgatory.check([("a", 0)])


def test_refuses_beyond_its_bounds() -> None:
    few_operations = Purgatory(operations_max=1, keys_max=10)
    assert few_operations.park(Waiting(), [("a", 0)], 1) is not None
    assert few_operations.park(Waiting(), [("a", 0)], 1) is None
    few_keys = Purgatory(operations_max=10, keys_max=2)
    assert few_keys.park(Waiting(), [("a", 0), ("a", 1), ("a", 2)], 1) is None
    assert len(few_keys) == few_keys.keys_count == 0


def test_tells_of_an_earlier_deadline_only(purgatory: Purgatory) -> None:
    told: list[int] = []
    purgatory.on_earlier_deadline = told.append
    for deadline_ms in (100, 200, 50, 70):
        purgatory.park(Waiting(), [("a", 0)], deadline_ms)
    assert told == [100, 50]


def test_an_operation_may_park_another_while_it_expires(purgatory: Purgatory) -> None:
    class Chain(Waiting):
        def on_expire(self) -> None:
            super().on_expire()
            purgatory.park(follower, [("a", 0)], 500)

    follower = Waiting()
    purgatory.park(Chain(), [("a", 0)], 100)
    assert purgatory.expire(100) == 1
    assert len(purgatory) == 1
    assert follower.outcome == []


def test_stale_deadlines_do_not_pile_up(purgatory: Purgatory) -> None:
    for round_number in range(5000):
        waiting = Waiting()
        purgatory.park(waiting, [("a", 0)], 1_000_000 + round_number)
        waiting.is_ready = True
        purgatory.check([("a", 0)])
    assert len(purgatory._deadlines) < 200


def test_agrees_with_a_dumb_model_over_random_steps(purgatory: Purgatory) -> None:
    chance = random.Random(20130101)
    alive: dict[Waiting, tuple[set[tuple[str, int]], int]] = {}
    handles = {}
    now_ms = 0
    for _ in range(3000):
        match chance.randrange(4):
            case 0:
                waiting = Waiting()
                keys = [("t", chance.randrange(8)) for _ in range(chance.randrange(1, 4))]
                deadline_ms = now_ms + chance.randrange(1, 50)
                handles[waiting] = purgatory.park(waiting, keys, deadline_ms)
                alive[waiting] = (set(keys), deadline_ms)
            case 1 if alive:
                chance.choice(list(alive)).is_ready = True
                key = ("t", chance.randrange(8))
                purgatory.check([key])
                for waiting, (keys_of, _) in list(alive.items()):
                    if waiting.is_ready and key in keys_of:
                        assert waiting.outcome == ["completed"]
                        del alive[waiting]
            case 2 if alive:
                waiting = chance.choice(list(alive))
                handle = handles[waiting]
                assert handle is not None
                handle.cancel()
                del alive[waiting]
            case _:
                now_ms += chance.randrange(20)
                purgatory.expire(now_ms)
                for waiting, (_, deadline_ms) in list(alive.items()):
                    if deadline_ms <= now_ms:
                        assert waiting.outcome == ["expired"]
                        del alive[waiting]
        assert len(purgatory) == len(alive)
        assert all(waiting.outcome == [] for waiting in alive)
