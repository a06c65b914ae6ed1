"""What is said of a record's members that make no sense."""

from typing import Any

import pytest

from fairlead_broker.rest.records.embedding import EmbeddingError, read_timestamp


@pytest.mark.parametrize(
    ("timestamp", "reason"),
    [
        (1.5, "a timestamp is a whole number of milliseconds, or a text"),
        (True, "a timestamp is a whole number of milliseconds, or a text"),
        ([], "a timestamp is a whole number of milliseconds, or a text"),
        (2**63, "a timestamp is at most 9223372036854775807"),
        (-1, "a timestamp is in 1970 or later"),
        ("1969-12-31T23:59:59Z", "a timestamp is in 1970 or later"),
    ],
)
def test_a_timestamp_that_cannot_be_is_told_why(timestamp: Any, reason: str) -> None:
    with pytest.raises(EmbeddingError, match=reason):
        read_timestamp(timestamp)
