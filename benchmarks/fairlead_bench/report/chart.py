"""The chart of the results: Fairlead as a share of Apache Kafka, metric by metric."""

from pathlib import Path
from typing import Any

from fairlead_bench.report.metrics import METRICS, Metric
from fairlead_bench.report.results import KAFKA, LIMIT, OURS, Results
from fairlead_bench.report.terminal_report import number

COLOURS = {OURS: "#1f6f8b", KAFKA: "#c9ccd1", LIMIT: "#e8b04b"}
LABELS = {OURS: "Fairlead", KAFKA: "Apache Kafka", LIMIT: "null broker (limit)"}
PANELS_A_ROW = 4


def draw_chart(results: Results, path: Path, *, title: str) -> None:
    """Draw a small panel for each metric, with the extremes as whiskers and the target."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    shown = [metric for metric in METRICS if results.spread(KAFKA, metric) is not None]
    shown = shown or [metric for metric in METRICS if results.spread(OURS, metric) is not None]
    rows = -(-len(shown) // PANELS_A_ROW)
    figure, axes = pyplot.subplots(
        rows, PANELS_A_ROW, figsize=(3.1 * PANELS_A_ROW, 2.1 * rows), squeeze=False
    )
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    heading = ""
    for metric, axis in zip(shown, axes.flat, strict=False):
        heading = metric.title or heading
        draw_panel(axis, results, metric, heading)
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()]
    figure.suptitle(title, fontsize=11, x=0.01, y=0.995, ha="left", va="top")
    figure.legend(
        handles, LABELS.values(), loc="upper right", ncols=len(LABELS), fontsize=8, frameon=False
    )
    figure.tight_layout(rect=(0, 0, 1, 0.985))
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def draw_panel(axis: Any, results: Results, metric: Metric, heading: str) -> None:
    subjects = [subject for subject in COLOURS if results.spread(subject, metric) is not None]
    highest = 0.0
    for index, subject in enumerate(reversed(subjects)):
        spread = results.spread(subject, metric)
        assert spread is not None
        whiskers = [[spread.median - spread.low], [spread.high - spread.median]]
        axis.barh(index, spread.median, color=COLOURS[subject], xerr=whiskers, ecolor="#555555")
        mark = " (client-bound)" if results.is_client_bound(subject, metric.scenario) else ""
        axis.text(
            spread.high * 1.02, index, f"{number(spread.median)}{mark}", va="center", fontsize=7
        )
        highest = max(highest, spread.high)
    kafka = results.spread(KAFKA, metric)
    if metric.target is not None and (kafka is not None or not metric.target.is_ratio):
        scale = kafka.median if metric.target.is_ratio and kafka is not None else 1.0
        axis.axvline(metric.target.bound * scale, color="#b03030", linewidth=1, linestyle=":")
    axis.set_xlim(0, highest * 1.35 or 1)
    axis.set_yticks([])
    axis.tick_params(labelsize=7)
    arrow = "less is better" if metric.better.value == "lower" else "more is better"
    axis.set_title(f"{heading}\n{metric.unit}, {arrow}", fontsize=8, loc="left")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
