"""Columns of the source: names and types of Spark's Kafka source, which a user cannot change."""

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
# In DDL, the session's spark.sql.timestampType decides what `timestamp` alone means.
_DDL: Final = {"timestamp": "timestamp_ltz"}
_HEADERS: Final = ("headers", "array<struct<key:string,value:binary>>")


def spark_schema(*, include_headers: bool) -> str:
    """Return the schema as a DDL string."""
    return ", ".join(f"{name} {_DDL.get(kind, kind)}" for name, kind in _columns(include_headers))


def check_schema(schema: Any, *, include_headers: bool) -> None:
    """Raise OptionError for a user's schema: rows would be read with wrong types."""
    columns = _columns(include_headers)
    if [(each.name, each.dataType.simpleString()) for each in schema.fields] != list(columns):
        raise OptionError(
            f"the columns are always {spark_schema(include_headers=include_headers)}: leave out "
            ".schema(…), and cast value in the query"
        )


def _columns(include_headers: bool) -> tuple[tuple[str, str], ...]:
    return (*_COLUMNS, _HEADERS) if include_headers else _COLUMNS
