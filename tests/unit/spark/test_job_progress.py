import json
import socket
import urllib.request
from typing import Any
from uuid import UUID

import pytest

from fairlead_spark.job import progress_page
from fairlead_spark.job.driver import describe_error
from fairlead_spark.job.progress import describe_query, has_state, source_lag
from fairlead_spark.job.progress_page import ProgressPage

ID = UUID("12345678-1234-5678-1234-567812345678")


def progress(**more: Any) -> dict[str, Any]:
    """As PySpark gives it: ids are UUIDs, our offsets mappings, those of the connector texts."""
    return {
        "id": ID,
        "name": "delays",
        "batchId": 7,
        "numInputRows": 100,
        "processedRowsPerSecond": 49.6,
        "sources": [
            {
                "endOffset": {
                    "@topicIds": {"flights": "x"},
                    "@begun": {"flights": {"0": 2}},
                    "flights": {"0": 5, "1": 7},
                },
                "latestOffset": {"flights": {"0": 9, "1": 7, "2": 3}},
            },
            {
                "endOffset": '{"weather":{"0":1}}',
                "latestOffset": '{"weather":{"0":2}}',
            },
        ],
        "stateOperators": [],
        **more,
    }


def test_the_page_is_json_whatever_spark_gives() -> None:
    page = ProgressPage(lambda: {"queries": [describe_query(progress())]}, port=0, host="127.0.0.1")
    page.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/progress", timeout=5) as answer:
            (query,) = json.load(answer)["queries"]
    finally:
        page.stop()
    assert query == {
        "id": str(ID),
        "name": "delays",
        "batchId": 7,
        "inputRows": 100,
        "rowsPerSecond": 50,
        "lag": 8,
    }


def test_a_client_that_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kept a thread of the driver for good."""
    monkeypatch.setattr(progress_page, "CLIENT_TIMEOUT_S", 0.1)
    page = ProgressPage(dict, port=0, host="127.0.0.1")
    page.start()
    try:
        with socket.create_connection(("127.0.0.1", page.port), timeout=30) as client:
            assert client.recv(1) == b"", "it is closed"
    finally:
        page.stop()


def test_lag_counts_new_partitions_and_never_below_nothing() -> None:
    assert source_lag({"endOffset": {"t": {"0": 9}}, "latestOffset": {"t": {"0": 7}}}) == 0
    assert source_lag({"endOffset": {}, "latestOffset": {"t": {"4": 7}}}) == 7


def test_sources_without_offsets_of_topics_have_no_lag() -> None:
    for offset in (None, 5, "5", "not json", {"file": "x"}, {"t": {"0": "x"}}):
        assert source_lag({"endOffset": offset, "latestOffset": offset}) is None
    assert describe_query({"id": ID})["lag"] is None


def test_state_is_seen() -> None:
    assert not has_state(progress())
    assert has_state(progress(stateOperators=[{"numRowsTotal": 1}]))


def test_an_error_from_the_jvm_is_told_in_a_line() -> None:
    text = """[STREAM_FAILED] Query failed. SQLSTATE: XXKST
Traceback (most recent call last):
  File "x.py", line 1, in read
fairlead_spark.errors.SourceError: topic orders was deleted

JVM stacktrace:
at org.apache.spark"""
    told = describe_error(RuntimeError(text))
    assert told.startswith("RuntimeError: [STREAM_FAILED] Query failed.")
    assert told.endswith("SourceError: topic orders was deleted")
    assert "\n" not in told
