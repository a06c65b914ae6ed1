import pytest

from fairlead_controller.decisions.events import FenceReason
from fairlead_controller.sessions.liveness import Liveness, Verdict

TIMEOUT_MS = 1500


def watching(count: int) -> Liveness:
    liveness = Liveness(TIMEOUT_MS)
    for broker_id in range(count):
        liveness.on_connected(broker_id, broker_epoch=10 + broker_id, now_ms=0)
    return liveness


def beat(liveness: Liveness, now_ms: int, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        liveness.on_heard(broker_id, now_ms)


def dead(liveness: Liveness, now_ms: int) -> list[int]:
    return [verdict.broker_id for verdict in liveness.tick(now_ms)]


def test_silence_ends_a_session_after_its_timeout() -> None:
    liveness = watching(3)
    beat(liveness, 1000, 0, 1)
    assert liveness.tick(1499) == []
    assert liveness.tick(1500) == [Verdict(2, 12, FenceReason.SESSION_EXPIRED)]
    assert liveness.tick(1500) == []
    assert not liveness.is_alive(2)


def test_a_session_keeps_the_timeout_that_its_broker_was_told() -> None:
    liveness = watching(3)
    liveness.session_timeout_ms = 500
    liveness.on_connected(1, 21, 100)
    beat(liveness, 200, 0, 1, 2)
    assert liveness.tick(699) == []
    assert liveness.tick(700) == [Verdict(1, 21, FenceReason.SESSION_EXPIRED)]
    liveness.session_timeout_ms = 9000
    liveness.on_connected(1, 31, 700)
    beat(liveness, 800, 0, 1, 2)
    beat(liveness, 2000, 0)
    assert dead(liveness, 2300) == [2], "which was told nothing new"
    beat(liveness, 2300, 0)
    assert dead(liveness, 3700) == []
    assert liveness.is_alive(1)


def test_a_closed_session_gets_a_short_grace() -> None:
    liveness = watching(3)
    liveness.on_closed(1, 200)
    assert dead(liveness, 299) == []
    assert liveness.tick(300) == [Verdict(1, 11, FenceReason.CONNECTION_LOST)]


def test_a_refused_port_means_dead_now() -> None:
    liveness = watching(3)
    liveness.on_closed(1, 200)
    liveness.on_refused(1, 201)
    assert liveness.tick(201) == [Verdict(1, 11, FenceReason.CONNECTION_REFUSED)]


def test_a_broker_that_comes_back_in_time_is_not_dead() -> None:
    liveness = watching(3)
    liveness.on_closed(1, 200)
    liveness.on_connected(1, 11, 250)
    liveness.on_refused(1, 251)  # a late answer to the probe
    assert dead(liveness, 1000) == []
    assert liveness.is_alive(1)


def test_a_false_refusal_is_not_believed_again() -> None:
    liveness = watching(3)
    liveness.on_closed(1, 200)
    liveness.on_refused(1, 200)
    assert dead(liveness, 200) == [1]
    liveness.on_connected(1, 11, 400)  # the same epoch: it was never dead
    liveness.on_closed(1, 500)
    liveness.on_refused(1, 500)
    assert dead(liveness, 599) == []
    assert dead(liveness, 600) == [1]


def test_a_new_incarnation_proves_a_refusal_right() -> None:
    liveness = watching(3)
    liveness.on_closed(1, 200)
    liveness.on_refused(1, 200)
    assert dead(liveness, 200) == [1]
    liveness.on_connected(1, 20, 400)
    liveness.on_closed(1, 500)
    liveness.on_refused(1, 500)
    assert dead(liveness, 500) == [1]


def test_when_most_vanish_at_once_nothing_happens_for_one_timeout() -> None:
    liveness = watching(3)
    for broker_id in (0, 1):
        liveness.on_closed(broker_id, 1000)
        liveness.on_refused(broker_id, 1000)
    assert dead(liveness, 1000) == []
    beat(liveness, 2000, 2)
    assert dead(liveness, 2499) == []
    assert dead(liveness, 2500) == [0, 1]


def test_the_hold_off_does_not_renew_itself() -> None:
    liveness = watching(5)
    for broker_id in (0, 1, 2):
        liveness.on_closed(broker_id, 0)
    assert dead(liveness, 100) == []
    beat(liveness, 1400, 3, 4)
    liveness.on_closed(3, 1400)
    liveness.on_slept(1550)
    assert dead(liveness, 1600) == [0, 1, 2, 3]


def test_it_can_begin_again_after_a_quiet_time() -> None:
    liveness = watching(3)
    for broker_id in (0, 1):
        liveness.on_closed(broker_id, 0)
    assert dead(liveness, 100) == []
    for broker_id in (0, 1, 2):
        liveness.on_connected(broker_id, 10 + broker_id, 1500)
    assert dead(liveness, 1700) == []
    for broker_id in (0, 1):
        liveness.on_closed(broker_id, 2000)
    assert dead(liveness, 2200) == []
    beat(liveness, 3600, 2)
    assert dead(liveness, 3700) == [0, 1]


def test_after_the_controller_slept_everybody_has_one_timeout() -> None:
    liveness = watching(3)
    liveness.on_slept(5000)
    assert dead(liveness, 5000) == []
    beat(liveness, 5001, 0, 1)
    beat(liveness, 6000, 0, 1)
    assert dead(liveness, 6499) == []
    assert dead(liveness, 6500) == [2]


def test_brokers_known_from_the_store_have_one_timeout_to_come() -> None:
    liveness = Liveness(TIMEOUT_MS)
    for broker_id in range(3):
        liveness.expect(broker_id, 7, 0)
        assert not liveness.is_alive(broker_id)
    liveness.on_connected(0, 7, 100)
    liveness.on_connected(1, 7, 100)
    beat(liveness, 1400, 0, 1)
    assert dead(liveness, 1499) == []
    assert liveness.tick(1500) == [Verdict(2, 7, FenceReason.CONNECTION_LOST)]


def test_who_is_absent_is_told_once_half_of_all_have_come() -> None:
    liveness = Liveness(TIMEOUT_MS)
    for broker_id in range(4):
        liveness.expect(broker_id, 7, 0)
    assert liveness.absent() is None
    liveness.on_connected(1, 7, 10)
    assert liveness.absent() is None
    liveness.on_connected(2, 8, 20)
    assert liveness.absent() == [(0, 7), (3, 7)]
    liveness.on_closed(2, 30)
    assert liveness.absent() is None
    liveness.on_connected(2, 8, 40)
    liveness.on_refused(3, 50)
    assert liveness.tick(50) == [Verdict(3, 7, FenceReason.CONNECTION_REFUSED)]
    liveness.on_connected(0, 7, 60)
    assert liveness.absent() == []


def test_a_broker_that_said_goodbye_is_not_missed() -> None:
    liveness = watching(2)
    liveness.forget(0)
    liveness.on_closed(0, 10)
    beat(liveness, 5000, 1)
    assert dead(liveness, 5000) == []


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_a_single_death_is_seen_at_once_where_others_live(count: int) -> None:
    liveness = watching(count)
    liveness.on_closed(0, 100)
    liveness.on_refused(0, 100)
    assert dead(liveness, 100) == ([0] if count > 1 else [])


@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("sign", ["refused", "closed", "silent"])
def test_one_of_three_that_dies_is_never_held_off(victim: int, sign: str) -> None:
    """Nor is the second, after the first has been fenced."""
    liveness = watching(3)
    others = [broker_id for broker_id in range(3) if broker_id != victim]
    now_ms = 200
    for round_victim, living in ((victim, others), (others[0], others[1:])):
        due_ms = now_ms
        if sign != "silent":
            liveness.on_closed(round_victim, now_ms)
            due_ms += 100 if sign == "closed" else 0
        if sign == "refused":
            liveness.on_refused(round_victim, now_ms)
        if sign == "silent":
            due_ms += TIMEOUT_MS
            beat(liveness, now_ms, round_victim)
        beat(liveness, due_ms - 1, *living)
        if sign != "refused":
            assert dead(liveness, due_ms - 1) == []
        assert dead(liveness, due_ms) == [round_victim]
        now_ms = due_ms + 50


def test_a_dead_broker_is_judged_while_another_one_starts() -> None:
    liveness = watching(3)
    liveness.forget(0)  # fenced; its new start registers
    liveness.on_connected(0, 20, 300)
    liveness.on_closed(1, 310)
    liveness.on_refused(1, 310)
    assert dead(liveness, 310) == [1]
    assert liveness.is_suspect(0) is False


def test_the_last_ones_are_never_declared_dead_together() -> None:
    """A controller that hears nobody takes nobody's leadership; whoever comes back ends that."""
    liveness = watching(3)
    assert dead(liveness, 60_000) == []
    liveness.on_connected(1, 11, 60_001)
    beat(liveness, 60_500, 1)
    assert dead(liveness, 60_500) == []
    beat(liveness, 61_400, 1)
    assert dead(liveness, 61_499) == []
    assert dead(liveness, 61_500) == [0, 2]


def test_the_last_one_is_dead_when_its_port_refuses() -> None:
    liveness = watching(2)
    for broker_id in range(2):
        liveness.on_closed(broker_id, 1000)
    liveness.on_refused(1, 1000)
    assert dead(liveness, 1000) == []
    assert dead(liveness, 2500) == [1]
    assert dead(liveness, 60_000) == []
    liveness.on_refused(0, 60_000)
    assert dead(liveness, 60_000) == [0]


def test_a_lost_network_is_one_event_though_heartbeats_were_not() -> None:
    """The first that falls due is not judged before the others, who went with it."""
    liveness = watching(3)
    for broker_id, last_ms in enumerate((1000, 1120, 1240)):
        beat(liveness, last_ms, broker_id)
    for now_ms in range(2400, 60_000, 20):
        assert dead(liveness, now_ms) == []


def test_a_network_that_heals_late_has_all_come_back_before_anybody_is_judged() -> None:
    """It delivers the ends of their old connections first, one after another, at load late."""
    liveness = watching(3)
    for now_ms in range(0, 10_000, 20):
        assert dead(liveness, now_ms) == []
    liveness.on_connected(0, 10, 10_000)
    assert dead(liveness, 10_000) == []
    liveness.on_closed(1, 10_010)
    liveness.on_closed(2, 10_020)
    assert dead(liveness, 10_200) == []
    liveness.on_connected(1, 11, 10_300)
    beat(liveness, 11_400, 0, 1)
    assert dead(liveness, 11_499) == []
    assert dead(liveness, 11_500) == [2]
