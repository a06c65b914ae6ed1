"""The matrix of acknowledgements: which cells there are, and what is counted of each."""

from pathlib import Path

from fairlead_bench.loads.promise_load import history_file, load_history
from fairlead_bench.report.metrics import METRICS
from fairlead_bench.scenarios.promise_cells import CELLS
from fairlead_bench.scenarios.promises import Outcome, build_outcome
from fairlead_cli.drill.checker import check
from fairlead_cli.drill.history import FoundRecord, History


def test_the_matrix_has_each_combination_that_can_be_written_to() -> None:
    assert len(set(CELLS)) == 15
    assert all(cell.min_in_sync <= cell.replicas for cell in CELLS)
    assert {(cell.acks, cell.replicas) for cell in CELLS} == {
        (acks, replicas) for acks in ("0", "1", "all") for replicas in (1, 2, 3)
    }


def test_each_cell_is_reported_and_acks_all_may_lose_nothing() -> None:
    rows = {metric.key: metric for metric in METRICS}
    assert len(rows) == len(METRICS)
    for cell in CELLS:
        lost = rows[f"{cell.key}_lost"]
        assert (lost.target is not None) == (cell.acks == "all")
        for what in ("throughput", "p99", "refused", "survived"):
            assert f"{cell.key}_{what}" in rows


def test_losses_survivors_and_refusals_are_told_apart(tmp_path: Path) -> None:
    key = History().add_key("t", 0)
    for _ in range(6):
        key.note_sent()
    for acknowledged in (0, 1, 2):
        key.note_acknowledged(acknowledged, None)
    for refused in (3, 4):
        key.note_refused(refused)
    history_file(tmp_path, "t").write_bytes(key.offsets.tobytes())
    history = load_history(tmp_path, "t")
    # 0 was kept, 1 and 2 are gone; 3 was refused and survived, 5 had no answer and survived.
    found = [FoundRecord(0, offset, "t", number) for offset, number in enumerate((0, 3, 5, 5))]
    outcome = build_outcome(check(history, found), refused=history.refused)
    assert outcome == Outcome(acknowledged=3, refused=2, lost=2, survived=2, doubled=1, foreign=0)
