"""When a candidate takes over from a holder whose znode is still there."""

from fairlead_controller.zookeeper.holder_judgement import SILENCE_MS, SLEPT_MS, HolderSight


def judged(sight: HolderSight, *moments: int) -> str:
    """The verdict at the last of these moments, looked at all of them."""
    verdict = ""
    for moment in moments:
        verdict = sight.judge(moment)
    return verdict


def test_a_holder_that_is_heard_stays() -> None:
    sight = HolderSight()
    for moment in range(0, 5000, 100):
        sight.on_beat(moment)
        assert sight.judge(moment) == ""


def test_silence_counts_from_the_last_beat() -> None:
    sight = HolderSight()
    sight.on_beat(0)
    assert judged(sight, *range(0, SILENCE_MS + 1, 100)) == ""
    assert "silent" in sight.judge(SILENCE_MS + 100)


def test_a_refused_connection_after_a_beat_is_death_at_once() -> None:
    sight = HolderSight()
    sight.on_beat(0)
    sight.on_refused()
    assert "refuses" in sight.judge(10)


def test_a_holder_that_was_never_heard_is_left_to_zookeeper() -> None:
    """Otherwise two candidates that cannot reach each other depose each other for ever."""
    sight = HolderSight()
    sight.on_refused()
    assert judged(sight, *range(0, 20 * SILENCE_MS, 100)) == ""


def test_who_has_slept_listens_again_before_it_judges() -> None:
    sight = HolderSight()
    sight.on_beat(0)
    assert sight.judge(0) == ""
    woken = SLEPT_MS + 5 * SILENCE_MS
    assert judged(sight, *range(woken, woken + SILENCE_MS + 1, 100)) == ""
    assert "silent" in sight.judge(woken + SILENCE_MS + 100)
