"""When a silent process is replaced: a table of histories, and the patience that grows."""

from dataclasses import dataclass, field

import pytest

from fairlead_cli.local.freeze_judgement import (
    FORGIVEN_AFTER_S,
    PATIENCE_MAX_S,
    FreezeJudgement,
    Look,
    Verdict,
)

INTERVAL_S = 0.25
LOOKS_AN_ANSWER = 3


@dataclass
class Watched:
    """A process with a history: answers, silence, and processors that others have."""

    judgement: FreezeJudgement
    now_s: float = 1000.0
    waited_s: float = 50.0
    verdicts: list[tuple[float, Verdict]] = field(default_factory=list)

    def look(self, *, has_answered: bool = False, is_stopped: bool = False) -> None:
        look = Look(self.now_s, has_answered, self.waited_s, is_stopped)
        verdict = self.judgement.take(look)
        if verdict is not None:
            self.verdicts.append((self.now_s - 1000.0, verdict))
            self.judgement.begin()
            self.waited_s = 0.0  # Another process, which has not waited yet.

    def live(self, state: str, seconds: float) -> None:
        step_s = 1.0 if state == "watcher starved" else INTERVAL_S
        for number in range(round(seconds / step_s)):
            self.now_s += step_s
            if state == "starved":
                self.waited_s += 0.875 * step_s
            has_answered = state == "answers" and number % LOOKS_AN_ANSWER == 0
            self.look(has_answered=has_answered, is_stopped=state == "stopped")

    def away(self, seconds: float) -> None:
        """The watcher does not run."""
        self.now_s += seconds


def watch(*history: tuple[str, float]) -> list[tuple[float, Verdict]]:
    watched = Watched(FreezeJudgement(2.0))
    watched.look()
    for state, seconds in history:
        if state == "watcher away":
            watched.away(seconds)
        else:
            watched.live(state, seconds)
    return watched.verdicts


@pytest.mark.parametrize(
    ("history", "at_s"),
    [
        ([("answers", 60)], []),
        # Ever so late, but within the patience: the last answer came half a second before.
        ([("answers", 6), ("silent", 1.25), ("answers", 6), ("silent", 1.25), ("answers", 6)], []),
        ([("answers", 6), ("stopped", 1.5)], [7.5]),
        ([("answers", 6), ("silent", 1.5)], [7.5]),
        # Woken at the last moment: it answers as soon as it can.
        ([("answers", 6), ("stopped", 1.25), ("silent", 2), ("answers", 6)], []),
        ([("answers", 6), ("stopped", 1.25), ("silent", 2.25)], [9.5]),
        # Never an answer since it was said to serve.
        ([("silent", 2)], [2.0]),
        # Seven eighths of the time others have the processors: one eighth counts.
        ([("answers", 6), ("starved", 11.5), ("answers", 6)], []),
        ([("answers", 6), ("starved", 12)], [18.0]),
        # A laptop that sleeps, a supervisor behind Ctrl-Z: what was silent before is forgotten.
        ([("answers", 6), ("watcher away", 3600), ("answers", 6)], []),
        ([("answers", 6), ("silent", 1), ("watcher away", 3600), ("silent", 1.75)], []),
        ([("answers", 6), ("silent", 1), ("watcher away", 30), ("silent", 2.25)], [39.25]),
        # A watcher that is hardly ever run itself judges nobody.
        ([("answers", 6), ("watcher starved", 120)], []),
    ],
)
def test_histories(history: list[tuple[str, float]], at_s: list[float]) -> None:
    assert [at for at, _ in watch(*history)] == pytest.approx(at_s)


def test_what_is_slow_by_itself_is_given_twice_as_long_each_time() -> None:
    """Every successor is as slow: there is no loop of kills."""
    verdicts = watch(("silent", 600))
    patience = [2.0, 4.0, 8.0, 16.0, 32.0, *(60.0 for _ in range(20))]
    assert [verdict.silent_s for _, verdict in verdicts] == pytest.approx(patience[: len(verdicts)])
    assert len(verdicts) == 13
    assert [verdict.next_patience_s for _, verdict in verdicts[:3]] == [4.0, 8.0, 16.0]
    assert verdicts[-1][1].next_patience_s == PATIENCE_MAX_S


def test_a_signal_from_outside_is_not_held_against_the_next_one() -> None:
    verdicts = watch(*[("answers", 6), ("stopped", 1.5)] * 5)
    assert [at for at, _ in verdicts] == [7.5 * number for number in range(1, 6)]
    assert {verdict.next_patience_s for _, verdict in verdicts} == {2.0}


@pytest.mark.parametrize(
    ("answers_s", "patience_s"), [(FORGIVEN_AFTER_S - 3, 8), (FORGIVEN_AFTER_S + 3, 2)]
)
def test_a_long_time_of_answers_forgives(answers_s: float, patience_s: float) -> None:
    verdicts = watch(("silent", 6.5), ("answers", answers_s), ("silent", patience_s))
    assert [verdict.silent_s for _, verdict in verdicts] == [2.0, 4.0, patience_s]


def test_a_process_that_has_just_ended_has_not_been_silent_for_as_long_as_it_had_waited() -> None:
    judgement = FreezeJudgement(2.0)
    assert judgement.take(Look(10.0, has_answered=True, waited_s=500.0)) is None
    assert judgement.take(Look(10.25, has_answered=False, waited_s=0.0)) is None


def test_a_patience_that_was_chosen_above_the_bound_holds() -> None:
    assert FreezeJudgement(300.0).patience_s == 300.0
