"""Shapes as the structural OpenAPI schemas of CustomResourceDefinitions.

Everything has a bound, so that the API server can compute the maximum cost of a CEL rule.
"""

from dataclasses import is_dataclass
from typing import Any

from fairlead_model.resources.resource_reading import QUANTITY_NUMBER_MAX, QUANTITY_PATTERN
from fairlead_model.resources.resource_shape import (
    NO_DEFAULT,
    ConfigMap,
    Entries,
    Flag,
    Items,
    Member,
    Opaque,
    Quantity,
    Record,
    Rule,
    Shape,
    Text,
    Whole,
    record_of,
)

Schema = dict[str, Any]


def build_schema(shape: Shape) -> Schema:
    """Return the schema of a shape, without a description."""
    match shape:
        case Record():
            return _record_schema(shape)
        case Items():
            return _list_schema(shape)
        case Entries():
            value = build_schema(shape.value)
            return _object(additionalProperties=value, maxProperties=shape.maximum)
        case ConfigMap():
            value = _config_value_schema(shape)
            return _object(additionalProperties=value, maxProperties=shape.maximum)
        case Opaque():
            return _object(
                **{"x-kubernetes-preserve-unknown-fields": True}, maxProperties=shape.maximum
            )
        case Text():
            return _text_schema(shape)
        case Quantity():
            return {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": f"^{QUANTITY_PATTERN}$",
                "maxLength": 32,
                "minimum": 0,
                "maximum": QUANTITY_NUMBER_MAX,
            }
        case Flag():
            return {"type": "boolean"}
        case Whole():
            return {
                "type": "integer",
                "format": "int64",
                "minimum": shape.minimum,
                "maximum": shape.maximum,
            }


def _object(**parts: Any) -> Schema:
    return {"type": "object", **parts}


def _record_schema(record: Record) -> Schema:
    schema = _object(properties={member.name: member_schema(member) for member in record.members})
    required = [member.name for member in record.members if member.is_required]
    if required:
        schema["required"] = required
    rules = [rule_schema(rule) for rule in record.rules if rule.cel]
    if rules:
        schema["x-kubernetes-validations"] = rules
    return schema


def member_schema(member: Member) -> Schema:
    """Return the schema of a record's field, with its description and default."""
    schema = {"description": member.description, **build_schema(member.shape)}
    if not member.is_required:
        default = _default(member)
        if default is not None:
            schema["default"] = default
    return schema


def _default(member: Member) -> object:
    """Return the default that the API server fills in; empty records get their fields' defaults."""
    value = member.default
    if is_dataclass(value) and not isinstance(value, type):
        members = record_of(type(value)).members
        is_written = any(_default(inner) is not None for inner in members)
        return {} if is_written and all(not inner.is_required for inner in members) else None
    if value is NO_DEFAULT or value in ((), {}, ""):
        return None
    return value


def rule_schema(rule: Rule) -> Schema:
    """Return an entry of x-kubernetes-validations."""
    entry = {"rule": rule.cel, "message": rule.message}
    if rule.field:
        entry["fieldPath"] = f".{rule.field}"
    return entry


def _list_schema(shape: Items) -> Schema:
    schema: Schema = {
        "type": "array",
        "items": build_schema(shape.item),
        "maxItems": shape.maximum,
    }
    if shape.key:
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = [shape.key]
    else:
        schema["x-kubernetes-list-type"] = "atomic"
    return schema


def _text_schema(shape: Text) -> Schema:
    schema: Schema = {"type": "string"}
    if shape.choices:
        return {**schema, "enum": list(shape.choices)}
    schema["maxLength"] = shape.maximum
    if shape.minimum:
        schema["minLength"] = shape.minimum
    if shape.format:
        schema["format"] = shape.format
    if shape.pattern and shape.hint:
        cel = f"self.matches(r'^({shape.pattern})$')"
        schema["x-kubernetes-validations"] = [{"rule": cel, "message": shape.hint}]
    elif shape.pattern:
        schema["pattern"] = f"^({shape.pattern})$"
    return schema


def _config_value_schema(shape: ConfigMap) -> Schema:
    """Return a schema of all but mappings and lists; structural schemas cannot name several types.

    A mapping or list would have to be empty by these bounds, and the last bound excludes even that.
    """
    return {
        "x-kubernetes-preserve-unknown-fields": True,
        "nullable": True,
        "maxLength": shape.text_maximum,
        "maxProperties": 0,
        "maxItems": 0,
        "not": {"enum": [{}, []]},
    }
