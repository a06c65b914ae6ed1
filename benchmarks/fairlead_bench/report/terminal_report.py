"""The terminal's table: medians with extremes, ratio, target, and what limited a value."""

from rich.console import Console
from rich.table import Table

from fairlead_bench.report.metrics import METRICS, Metric
from fairlead_bench.report.results import KAFKA, LIMIT, OURS, Results

CLIENT_BOUND_MARK = "°"
VERDICTS = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(results: Results, subject: str, metric: Metric) -> str:
    spread = results.spread(subject, metric)
    if spread is None:
        return ""
    mark = CLIENT_BOUND_MARK if results.is_client_bound(subject, metric.scenario) else ""
    if spread.count == 1:
        return f"{number(spread.median)}{mark}"
    return f"{number(spread.median)}{mark} [dim]({number(spread.low)}–{number(spread.high)})[/]"  # noqa: RUF001


def print_report(results: Results, *, title: str, console: Console) -> None:
    table = Table(title=title, title_justify="left", caption_justify="left", header_style="bold")
    table.add_column("measured")
    table.add_column("unit", style="dim")
    for heading in ("Fairlead", "Apache Kafka", "limit here", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("target")
    table.add_column("")
    previous = ""
    for metric in METRICS:
        cells = [cell(results, subject, metric) for subject in (OURS, KAFKA, LIMIT)]
        if not any(cells):
            continue
        if previous and metric.scenario != previous:
            table.add_section()
        previous = metric.scenario
        ratio = results.ratio(metric)
        table.add_row(
            metric.title,
            metric.unit,
            *cells,
            "" if ratio is None else f"{ratio:.2f}",
            _target_text(metric),
            VERDICTS[results.meets_target(metric)],
        )
    table.caption = (
        f"Median (lowest–highest). {CLIENT_BOUND_MARK} the client was saturated. "  # noqa: RUF001
        "CPU: the broker's, user and system. Limit: a broker that does nothing but answer."
    )
    console.print(table)


def _target_text(metric: Metric) -> str:
    if metric.target is None:
        return ""
    sign = "≤" if metric.better.value == "lower" else "≥"
    return f"{sign} {metric.target}"
