"""Columns of the source: names and types of Spark's Kafka source, which are not for the user."""

from typing import Any, Final

from fairlead_spark.errors import OptionError

_COLUMNS: Final = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
)
# In DDL `timestamp` alone means what the session's spark.sql.timestampType says.
_DDL: Final = {"timestamp": "timestamp_ltz"}
_HEADERS: Final = ("headers", "array<struct<key:string,value:binary>>")


def spark_schema(*, include_headers: bool) -> str:
    """As a DDL string."""
    return ", ".join(f"{name} {_DDL.get(kind, kind)}" for name, kind in _columns(include_headers))


def check_schema(schema: Any, *, include_headers: bool) -> None:
    """OptionError for a schema of the user's: rows would be read as what they are not."""
    columns = _columns(include_headers)
    if [(each.name, each.dataType.simpleString()) for each in schema.fields] != list(columns):
        raise OptionError(
            f"the columns are always {spark_schema(include_headers=include_headers)}: leave out "
            ".schema(…), and cast value in the query"
        )


def _columns(include_headers: bool) -> tuple[tuple[str, str], ...]:
    return (*_COLUMNS, _HEADERS) if include_headers else _COLUMNS
