"""How long a kill was felt is computed from what applications tell, and from nothing else."""

import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
if str(PROJECT / "benchmarks") not in sys.path:
    sys.path.insert(0, str(PROJECT / "benchmarks"))

from fairlead_bench.loads.failover_client import (  # noqa: E402
    JAVA,
    NAMES,
    Telling,
    runnable_names,
)
from fairlead_bench.loads.failover_times import (  # noqa: E402
    NS_PER_MS,
    Acknowledgement,
    percentile,
    waited_ms,
)
from fairlead_bench.report.metrics import FAILOVER_P99_MS, METRICS  # noqa: E402
from fairlead_cli.drill.checker import check  # noqa: E402
from fairlead_cli.drill.history import FoundRecord  # noqa: E402

FAULT_NS = 1_000 * NS_PER_MS


def acknowledged(partition: int, *, handed_over_ms: int, after_ms: int) -> Acknowledgement:
    """Both times count from the fault."""
    return Acknowledgement(
        partition, 0, FAULT_NS + handed_over_ms * NS_PER_MS, FAULT_NS + after_ms * NS_PER_MS, 0
    )


def test_the_slowest_affected_partition_counts() -> None:
    told = [
        acknowledged(0, handed_over_ms=5, after_ms=100),
        acknowledged(3, handed_over_ms=10, after_ms=250),
        acknowledged(1, handed_over_ms=5, after_ms=9_000),
    ]
    assert waited_ms(told, {0, 3}, FAULT_NS) == 250


def test_the_first_answer_of_a_partition_counts_in_whichever_order_they_are_told() -> None:
    told = [
        acknowledged(0, handed_over_ms=40, after_ms=180),
        acknowledged(0, handed_over_ms=5, after_ms=100),
    ]
    assert waited_ms(told, {0}, FAULT_NS) == 100


def test_a_record_that_was_on_its_way_already_says_nothing() -> None:
    """The broker may have answered it with its last breath."""
    told = [acknowledged(0, handed_over_ms=-1, after_ms=1)]
    assert waited_ms(told, {0}, FAULT_NS) is None


def test_it_is_not_over_while_one_partition_waits() -> None:
    told = [acknowledged(0, handed_over_ms=5, after_ms=100)]
    assert waited_ms(told, {0, 3}, FAULT_NS) is None


@pytest.mark.parametrize(
    ("count", "share", "expected"), [(100, 0.99, 99), (100, 0.5, 50), (2, 0.99, 2), (1, 0.5, 1)]
)
def test_a_percentile_is_one_of_the_values(count: int, share: float, expected: int) -> None:
    assert percentile(range(count, 0, -1), share) == expected


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_what_an_application_tells_is_judged_by_the_drills_checker() -> None:
    telling = Telling("java")
    for line in (
        "acknowledged 0 0 100 200 0",
        "acknowledged 0 1 110 210 1",
        "failed 0 2 TimeoutException: 120000 ms have passed",
        "sent 0 3",
    ):
        telling.take(line)
    assert telling.failures == ["TimeoutException: 120000 ms have passed"]
    findings = check(telling.history(), [FoundRecord(0, 0, "java-0", 0)])
    assert (findings.sent, findings.acknowledged, findings.lost) == (3, 2, 1)


@pytest.mark.parametrize(
    "line", ["", "WARN connection lost", "acknowledged 0 1", "sent 0 many", "failed 0"]
)
def test_what_is_no_report_is_not_taken_for_one(line: str) -> None:
    with pytest.raises(ValueError):
        Telling("java").take(line)


def test_every_application_has_its_rows_in_the_report() -> None:
    keys = {metric.key for metric in METRICS}
    assert set(FAILOVER_P99_MS) == set(NAMES)
    assert {f"failover_{name}" for name in NAMES} <= keys
    assert {f"failover_{name}_p99" for name in NAMES} <= keys


def test_without_a_compiler_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    said: list[str] = []
    assert runnable_names(said.append) == tuple(name for name in NAMES if name != JAVA)
    assert said == ["the Java producer is left out: no `javac` on the path"]
