"""The document of a run's figures."""

from __future__ import annotations

from fairlead_bench.report.results import KAFKA, OURS, Results


def test_the_document_has_a_row_for_each_metric_that_was_measured() -> None:
    results = Results()
    results.values[OURS, "compaction_p99"].append(1.5)
    results.values[KAFKA, "start_fresh"].append(2.0)
    rows = {row["metric"]: row for row in results.as_json()}
    assert set(rows) == {"compaction_p99", "start_fresh"}
    assert rows["compaction_p99"][OURS]["median"] == 1.5
    assert OURS not in rows["start_fresh"]
