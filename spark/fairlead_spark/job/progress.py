"""A driver's progress: its queries, their rates and their lag. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead_spark.offsets import BEGUN, TOPIC_IDS


def describe_query(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Return a query for the page, from Spark's progress of it."""
    rate = progress.get("processedRowsPerSecond")
    lags = [source_lag(source) for source in progress.get("sources") or ()]
    known = [lag for lag in lags if lag is not None]
    return {
        # PySpark returns a UUID here, and a text if a query has made no progress yet.
        "id": str(progress.get("id")),
        "name": progress.get("name"),
        "batchId": progress.get("batchId"),
        "inputRows": progress.get("numInputRows"),
        "rowsPerSecond": None if rate is None else round(rate),
        "lag": sum(known) if known else None,
    }


def source_lag(source: Mapping[str, Any]) -> int | None:
    """Return the records that a source has not read yet; None if that is unknown."""
    latest, end = _positions(source.get("latestOffset")), _positions(source.get("endOffset"))
    if latest is None or end is None:
        return None
    return sum(max(position - end.get(key, 0), 0) for key, position in latest.items())


def has_state(progress: Mapping[str, Any]) -> bool:
    """Tell whether a query keeps state between batches: aggregations, joins, deduplication."""
    return bool(progress.get("stateOperators"))


def total_lag(queries: Iterable[Mapping[str, Any]]) -> int | None:
    """Lag of all queries together; None if it is unknown."""
    lags = [query["lag"] for query in queries if query.get("lag") is not None]
    return sum(lags) if lags else None


def _positions(offset: Any) -> dict[tuple[str, str], int] | None:
    """Return the offsets of topics if our source or Spark's Kafka source wrote them; else None."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if not isinstance(offset, Mapping):
        return None
    positions = {}
    for topic, partitions in offset.items():
        if topic in (TOPIC_IDS, BEGUN):
            continue
        if not isinstance(partitions, Mapping):
            return None
        for partition, position in partitions.items():
            if not isinstance(position, int):
                return None
            positions[topic, partition] = position
    return positions
