"""Prometheus' text format, one family at a time.

Families are written with their help and type even if they have no sample yet, so that a page always
has all metrics of the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.measures.durations import quantile_ns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fairlead_broker.measures.durations import Durations

NS: Final = 1_000_000_000
MS_NS: Final = 1_000_000
QUANTILES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""Kafka's percentiles, as the usual rules of the JMX exporter write them."""
HISTOGRAM_BITS: Final = range(14, 36)
"""Bounds of histograms: 2**14 ns is 16 µs, 2**35 ns is 34 s."""


def label_set(**labels: str | int) -> str:
    """Return labels in the format before a value; empty without labels."""
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escape(str(value))}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _with(labels: str, name: str, value: str) -> str:
    """Return `labels` with one more label."""
    return f'{labels[:-1]},{name}="{value}"}}' if labels else f'{{{name}="{value}"}}'


class Exposition:
    """Lines of text; each metric is added once."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(
        self, name: str, kind: str, meaning: str, samples: Iterable[tuple[str, float]]
    ) -> None:
        """Add a metric with samples of (`label_set`, value); `kind` is counter or gauge."""
        self._begin(name, kind, meaning)
        self._lines.extend([f"{name}{labels} {value}" for labels, value in samples])

    def one(self, name: str, kind: str, meaning: str, value: float) -> None:
        """Add a metric without labels."""
        self.family(name, kind, meaning, [("", value)])

    def summary(
        self,
        name: str,
        meaning: str,
        samples: Iterable[tuple[str, int, float, Sequence[int]]],
        *,
        unit_ns: int = MS_NS,
    ) -> None:
        """Add a summary with samples of (labels, count, sum in ns, recent counts by bit length).

        Without recent counts there are no quantiles.
        """
        self._begin(name, "summary", meaning)
        for labels, count, sum_ns, recent in samples:
            if recent:
                for quantile in QUANTILES:
                    value = quantile_ns(recent, float(quantile)) / unit_ns
                    self._lines.append(f"{name}{_with(labels, 'quantile', quantile)} {value}")
            self._lines.append(f"{name}_sum{labels} {sum_ns / unit_ns}")
            self._lines.append(f"{name}_count{labels} {count}")

    def histogram(self, name: str, meaning: str, samples: Iterable[tuple[str, Durations]]) -> None:
        """Add a histogram in seconds, which can be summed over processes."""
        self._begin(name, "histogram", meaning)
        for labels, durations in samples:
            counts = durations.counts
            below = sum(counts[: HISTOGRAM_BITS.start])
            for bits in HISTOGRAM_BITS:
                below += counts[bits]
                bound = _with(labels, "le", str((1 << bits) / NS))
                self._lines.append(f"{name}_bucket{bound} {below}")
            total = sum(counts)
            self._lines.append(f"{name}_bucket{_with(labels, 'le', '+Inf')} {total}")
            self._lines.append(f"{name}_sum{labels} {durations.total_ns / NS}")
            self._lines.append(f"{name}_count{labels} {total}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _begin(self, name: str, kind: str, meaning: str) -> None:
        self._lines.append(f"# HELP {name} {meaning}")
        self._lines.append(f"# TYPE {name} {kind}")
