"""The columns that a write may have: the rules of Spark's Kafka sink."""

from dataclasses import dataclass
from typing import Any, Final

from fairlead_spark.errors import OptionError
from fairlead_spark.options import SinkOptions

_TEXT_OR_BYTES: Final = ("string", "binary")
_TYPES: Final = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass(frozen=True)
class SinkColumns:
    """Positions of the columns in a row; None for columns that the rows do not have."""

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None


def check_sink_schema(schema: Any, options: SinkOptions) -> SinkColumns:
    """Find the columns in Spark's StructType; OptionError for a missing or a wrong one.

    Other columns are ignored, so that rows that were read can be written unchanged.
    """
    found: dict[str, int] = {}
    for position, column in enumerate(schema.fields):
        types = _TYPES.get(column.name)
        if types is None:
            continue
        if column.dataType.simpleString() not in types:
            raise OptionError(
                f"column {column.name} is {column.dataType.simpleString()}; it must be "
                f"{' or '.join(types)}: cast it"
            )
        found[column.name] = position
    if "value" not in found:
        raise OptionError("column value is missing: select what to write AS value")
    if "topic" not in found and options.topic is None:
        raise OptionError("no topic: set the option 'topic', or give each row a column topic")
    return SinkColumns(**found)
