"""Who may decide, who is too late, and whose transactions are aborted. Whole histories are
simulated (`tests/simulation/test_sink_seeds.py`)."""

import pytest

from fairlead_spark.errors import FencedError, SinkError, TakenOverError
from fairlead_spark.exactly_once.batch_decision import (
    BatchWriter,
    Decision,
    FindLost,
    PreparedTransaction,
    ReadDecision,
    TakeOver,
    WriteDecision,
    commit_batch,
    must_write,
)

WRITER = BatchWriter("orders", 5, "run-b", 1000, 20)


def test_a_task_writes_what_is_not_decided() -> None:
    assert must_write(WRITER, None)
    assert must_write(WRITER, Decision(4, "run-a", 1000))
    assert not must_write(WRITER, Decision(5, "run-a", 1000))


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Decision(5, "run-c", 1001), "began 1 ms after this one's has written batch 5"),
        (Decision(6, "run-b", 1000), "was decided long ago, the last one is 6"),
        (Decision(4, "run-c", 1000, execution=21), "run run-c has taken the place of run-b"),
    ],
)
def test_whoever_was_replaced_is_fenced(decision: Decision, said: str) -> None:
    with pytest.raises(FencedError, match=said):
        must_write(WRITER, decision)


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("fairlead-spark.orders.1000-run-b.0.0", True),
        ("fairlead-spark.orders.1000-run-b.12.r345", True),
        ("fairlead-spark.orders.999-other.0.0", True),
        ("fairlead-spark.orders.1000-replaced.0.0", True),
        ("fairlead-spark.orders.1000-next.0.0", False),
        ("fairlead-spark.orders.1001-run-b.0.0", False),
        ("fairlead-spark.orders.2.1000-run-b.0.0", False),
        ("fairlead-spark.orders.driver", False),
        ("orders.1000-run-b.0.0", False),
    ],
)
def test_only_transactions_that_nobody_can_decide_are_aborted(name: str, may: bool) -> None:
    assert WRITER.may_abort(name, ("replaced",)) is may


def test_names_may_hold_dots() -> None:
    writer = WRITER._replace(name="orders.2")
    assert writer.may_abort(writer.task_transactional_id(3, "0"), ())
    assert not WRITER.may_abort(writer.task_transactional_id(3, "0"), ())


def test_a_batch_whose_tasks_saw_a_decision_that_is_gone_is_not_decided_without_them() -> None:
    """Somebody has emptied the topic."""
    steps = commit_batch(WRITER, [PreparedTransaction("id", 1, 0)], is_decided=True)
    assert next(steps) == ReadDecision()
    assert steps.send(None) == TakeOver()
    assert steps.send(None) == ReadDecision()
    with pytest.raises(SinkError, match="does not hold that any more"):
        steps.send(None)


def test_drivers_that_take_over_from_each_other_give_up() -> None:
    steps = commit_batch(WRITER, [PreparedTransaction("id", 1, 0)])
    step = next(steps)
    with pytest.raises(SinkError, match="5 times another driver took over"):
        while True:
            if isinstance(step, WriteDecision):
                step = steps.throw(TakenOverError())
            else:
                step = steps.send([] if isinstance(step, FindLost) else None)
