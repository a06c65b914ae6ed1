"""How long it takes until partitions have leaders again: measured values and their source."""

from __future__ import annotations

import re
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from fairlead_model.host_address import join_address

if TYPE_CHECKING:
    from fairlead_cli.local.cluster_file import ClusterFile

# The limits in docs/failover.md, which drills keep in 99 of 100 runs.
CRASH_MS = 250
SILENCE_MS = 2000
OWN_SAMPLES_MIN = 5
# A busy machine keeps a controller from its processor for seconds; one that hangs takes all of it.
TIMEOUT_S = 5.0
BUCKET = re.compile(
    r'^fairlead_controller_leader_election_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE
)


def forecast_recovery(cluster: ClusterFile | None) -> dict[str, Any]:
    """Return the times for a crash, for a silent broker, and of this cluster's elections."""
    recovery: dict[str, Any] = {
        "crashMs": CRASH_MS,
        "silenceMs": SILENCE_MS,
        "source": "docs/failover.md: p99 of drills on one machine",
        "ownElections": None,
    }
    page = None if cluster is None else read_controller_page(cluster)
    if page is not None:
        recovery["ownElections"] = summarize_elections(page)
    return recovery


def read_controller_page(cluster: ClusterFile) -> str | None:
    """Return the metrics of a local controller; None if it does not answer."""
    entry = cluster.controller
    if not entry.is_alive:
        return None
    where = join_address(entry.host, entry.http_port)
    try:
        with urlopen(f"http://{where}/metrics", timeout=TIMEOUT_S) as page:
            return str(page.read().decode())
    except (OSError, HTTPException):
        return None


def summarize_elections(page: str) -> dict[str, Any] | None:
    """Return the number of elections, and the upper bounds of their median and 99th percentile.

    None if there are too few, or too many above all bounds.
    """
    buckets = [
        (float(bound), float(count))
        for bound, count in BUCKET.findall(page)
        if bound not in {"+Inf", "inf"}
    ]
    totals = [float(count) for bound, count in BUCKET.findall(page) if bound in {"+Inf", "inf"}]
    count = int(totals[0]) if totals else 0
    if count < OWN_SAMPLES_MIN:
        return None

    half = [bound for bound, seen in buckets if seen >= 0.5 * count]
    most = [bound for bound, seen in buckets if seen >= 0.99 * count]
    if not most:
        return None
    return {"count": count, "p50Ms": round(1000 * min(half)), "p99Ms": round(1000 * min(most))}
