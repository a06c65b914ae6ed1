"""Reads message definitions: JSON with `//` comments, as in the jar of kafka-clients.

It only takes facts (names, types, versions, tags, defaults), not the descriptions.
"""

import json
import keyword
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from codegen.versions import VersionRange

FIXED_FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
# Local variables of the generated functions, whose names the local of a field must not have.
RESERVED_LOCALS: Final = frozenset(
    {"append", "buffer", "count", "end", "message", "parts", "position", "segments", "size"}
    | {"stop", "tag", "tags", "text", "version", "values", "cls", "self", "payloads"}
)
DEFINITIONS_FOLDER: Final = "common/message/"


class SchemaError(ValueError):
    """A definition has something that the generator does not know."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `type` is the element's type if `is_array`; `struct` is set for structs."""

    name: str
    type: str
    is_array: bool
    struct: "StructSchema | None"
    versions: VersionRange
    nullable: VersionRange
    tagged: VersionRange
    tag: int
    ignorable: bool
    default: str | None

    @property
    def local(self) -> str:
        """The local variable that holds the field while it is decoded."""
        return f"{self.name}_value" if self.name in RESERVED_LOCALS else self.name

    @property
    def fixed_format(self) -> str | None:
        """The struct code of a field that is one fixed-size value, else None."""
        return None if self.is_array else FIXED_FORMATS.get(self.type)

    @property
    def is_tagged(self) -> bool:
        return not self.tagged.is_empty

    @property
    def is_optional_struct(self) -> bool:
        """Whether this is a tagged struct: it is None if absent, which means all defaults."""
        return self.struct is not None and not self.is_array and self.is_tagged


@dataclass(slots=True)
class StructSchema:
    """A message or a nested struct. `class_name` is unique in its module."""

    class_name: str
    fields: list[Field]

    @property
    def has_records(self) -> bool:
        """Whether the encoder may pass records on without a copy."""
        return any(
            field.type == "records" or (field.struct is not None and field.struct.has_records)
            for field in self.fields
        )

    def nested(self) -> "list[StructSchema]":
        """Return all structs below this one, the innermost first, each once."""
        found: list[StructSchema] = []
        for field in self.fields:
            if field.struct is not None:
                candidates = [*field.struct.nested(), field.struct]
                found.extend(each for each in candidates if each not in found)
        return found


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """A request or a response."""

    api_key: int
    kind: str
    root: StructSchema
    valid: VersionRange
    flexible: VersionRange
    is_latest_unstable: bool

    @property
    def flexible_window(self) -> VersionRange:
        return self.valid & self.flexible

    @property
    def plain_window(self) -> VersionRange:
        """The versions before flexible encoding."""
        if self.flexible_window.is_empty:
            return self.valid
        return VersionRange(self.valid.low, self.flexible_window.low - 1)


def snake_case(name: str) -> str:
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    spaced = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", spaced).lower()
    return f"{spaced}_" if keyword.iskeyword(spaced) else spaced


def read_definitions(jar: Path) -> dict[str, dict[str, Any]]:
    """Return all definitions of the jar by message name."""
    definitions = {}
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith(DEFINITIONS_FOLDER) and name.endswith(".json"):
                definition = json.loads(_without_comments(archive.read(name).decode()))
                definitions[definition["name"]] = definition
    if not definitions:
        raise SchemaError(f"{jar} holds no message definitions")
    return definitions


def _without_comments(text: str) -> str:
    # No string of the definitions has several lines, so a scan of each line is enough.
    string_or_comment = re.compile(r'("(?:[^"\\]|\\.)*")|//.*$')
    return "\n".join(
        string_or_comment.sub(lambda match: match.group(1) or "", line)
        for line in text.splitlines()
    )


def parse_message(definition: dict[str, Any]) -> MessageSchema:
    """Convert one definition to a schema; leave out fields that no valid version carries."""
    valid = VersionRange.parse(definition["validVersions"])
    parser = _StructParser(valid, definition.get("commonStructs", []))
    flexible = VersionRange.parse(definition["flexibleVersions"])
    return MessageSchema(
        api_key=definition["apiKey"],
        kind=definition["type"],
        root=parser.parse_struct(definition["name"], definition["fields"]),
        valid=valid,
        flexible=flexible,
        is_latest_unstable=bool(definition.get("latestVersionUnstable", False)),
    )


class _StructParser:
    """Builds the structs of one message; the same name always gives the same object."""

    def __init__(self, valid: VersionRange, common: list[dict[str, Any]]) -> None:
        self.valid = valid
        self.common = {each["name"]: each["fields"] for each in common}
        self.structs: dict[str, StructSchema] = {}

    def parse_struct(self, name: str, fields: list[dict[str, Any]]) -> StructSchema:
        if name not in self.structs:
            parsed = [self.parse_field(each) for each in fields]
            kept = [each for each in parsed if not (each.versions & self.valid).is_empty]
            self.structs[name] = StructSchema(name, kept)
        return self.structs[name]

    def parse_field(self, entry: dict[str, Any]) -> Field:
        is_array = entry["type"].startswith("[]")
        type_name = entry["type"].removeprefix("[]")
        struct = None
        if type_name[0].isupper():
            fields = entry.get("fields") or self.common.get(type_name)
            if fields is None and type_name not in self.structs:
                raise SchemaError(f"{entry['name']}: nothing defines {type_name}")
            struct = self.parse_struct(type_name, fields or [])
        elif type_name not in FIXED_FORMATS and type_name not in ("string", "bytes", "records"):
            raise SchemaError(f"{entry['name']}: unknown type {type_name}")
        default = entry.get("default")
        return Field(
            name=snake_case(entry["name"]),
            type=type_name,
            is_array=is_array,
            struct=struct,
            versions=VersionRange.parse(entry["versions"]),
            nullable=VersionRange.parse(entry.get("nullableVersions")),
            tagged=VersionRange.parse(entry.get("taggedVersions")),
            tag=entry.get("tag", -1),
            ignorable=bool(entry.get("ignorable", False)),
            default=None if default is None else str(default),
        )
