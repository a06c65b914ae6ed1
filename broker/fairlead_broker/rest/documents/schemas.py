"""JSON Schemas that several operations share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.rest.operations import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from fairlead_broker.rest.operations import Schema

TEXT: Final[Schema] = {"type": "string"}
TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
FLAG: Final[Schema] = {"type": "boolean"}
INT: Final[Schema] = {"type": "integer"}
OFFSET: Final[Schema] = {"type": "integer", "minimum": -1, "maximum": INT64_MAX}
ID: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}


def object_of(
    required: dict[str, Any] | None = None, optional: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return the schema of an object with these members and no others."""
    must, may = required or {}, optional or {}
    return {
        "type": "object",
        "properties": {**must, **may},
        "required": list(must),
        "additionalProperties": False,
        **more,
    }


def array_of(items: Schema, **more: Any) -> dict[str, Any]:
    """Return the schema of an array."""
    # Keywords are checked in this order: with too many items, no item is checked.
    return {"type": "array", **more, "items": items}
