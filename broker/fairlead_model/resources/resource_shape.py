"""Shapes: the values that a field of a Fairlead resource may have, from annotated dataclasses.

A resource is declared once, as frozen dataclasses. Annotations add what a type cannot express: a
text that describes the field, and a shape with its bounds.

    partitions: Annotated[int, "Partitions of the topic.", Whole(1, 100)] = 6

Three things come from this declaration: the schema of the CustomResourceDefinition, its reference
page, and the reader of manifests (`resource_reading`). Field names are snake case here and camel
case in manifests. This module uses only the standard library, because `fairlead up` reads
resources, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin
from typing import get_type_hints as type_hints

NO_DEFAULT: Final = MISSING


@dataclass(frozen=True, slots=True)
class Text:
    """A text of bounded length, counted in characters."""

    maximum: int
    minimum: int = 0
    pattern: str = ""
    """Regular expression for the whole text, in the syntax that Python and RE2 share."""
    hint: str = ""
    """What a person has to write, shown if the pattern does not match."""
    choices: tuple[str, ...] = ()
    format: str = ""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number; both bounds are included."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount in Kubernetes' notation: `500m`, `2`, `10Gi`; a number is accepted, too."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A mapping that is passed to Kubernetes unchanged, which also checks it."""

    maximum: int = 32


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """Settings by name: texts, numbers and truth values; null leaves a setting as it is."""

    maximum: int = 128
    text_maximum: int = 4096
    problem: Callable[[str, str | None], str | None] = field(default=lambda _name, _text: None)
    """Returns what is wrong with a setting, in words; used for manifests, not in the schema."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The most entries of a list or mapping; `key` is the field that identifies an entry."""

    maximum: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class ClusterOnly:
    """Marks a field that Kubernetes requires and `fairlead up` does not."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    item: "Shape"
    maximum: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping from texts to values of one shape."""

    value: "Shape"
    maximum: int


@dataclass(frozen=True, slots=True)
class Member:
    """One field of a record."""

    attribute: str
    name: str
    description: str
    shape: "Shape"
    default: Any
    """NO_DEFAULT for a required field; None for a field that may be absent."""
    is_cluster_only: bool

    @property
    def is_required(self) -> bool:
        """Whether Kubernetes refuses a record without this member."""
        return self.default is NO_DEFAULT or self.is_cluster_only


@dataclass(frozen=True, slots=True)
class Record:
    """A mapping with named fields, read into `type`."""

    type: type[Any]
    description: str
    members: tuple[Member, ...]
    rules: tuple["Rule", ...]


Shape: TypeAlias = Text | Whole | Flag | Quantity | Opaque | ConfigMap | Items | Entries | Record


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition over several fields, as CEL for the API server and as Python for the reader.

    A class lists its rules in `RULES`. A rule with `holds_change` compares the old and the new
    value of an update; the API server does not check it when the object is created.
    """

    cel: str
    message: str
    """What is wrong and how to fix it, for a person who sees only this text."""
    field: str = ""
    """The field, below the record, that the error names; empty for the record itself."""
    holds: Callable[[Any], bool] | None = None
    holds_change: Callable[[Any, Any], bool] | None = None


def camel_case(attribute: str) -> str:
    """Return the name of an attribute in manifests: `record_size` is `recordSize`."""
    head, *rest = attribute.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


_RECORDS: Final[dict[type[Any], Record]] = {}
"""Cache of the records of declarations, which do not change."""


def record_of(declared: type[Any]) -> Record:
    """Return the record of a dataclass; TypeError for a declaration that is incomplete."""
    if declared not in _RECORDS:
        _RECORDS[declared] = _read_record(declared)
    return _RECORDS[declared]


def _read_record(declared: type[Any]) -> Record:
    if not is_dataclass(declared):
        raise TypeError(f"{declared!r} is no dataclass")
    hints = type_hints(declared, include_extras=True)
    return Record(
        type=declared,
        description=" ".join(cleandoc(declared.__doc__ or "").split()),
        members=tuple(_member(item, hints[item.name]) for item in fields(declared)),
        rules=tuple(getattr(declared, "RULES", ())),
    )


def _member(item: Field[Any], hint: Any) -> Member:
    markers = hint.__metadata__ if get_origin(hint) is Annotated else ()
    descriptions = [marker for marker in markers if isinstance(marker, str)]
    if not descriptions:
        raise TypeError(f"the field {item.name} has no description")
    default = item.default
    if item.default_factory is not MISSING:
        default = item.default_factory()
    return Member(
        attribute=item.name,
        name=camel_case(item.name),
        description=descriptions[0],
        shape=_shape(hint),
        default=default,
        is_cluster_only=any(isinstance(marker, ClusterOnly) for marker in markers),
    )


def _shape(hint: Any, markers: tuple[Any, ...] = ()) -> Shape:
    """Return the shape of a type hint: the annotated shape, else the one that the type implies."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _shape(hint.__origin__, (*hint.__metadata__, *markers))
    if origin in {Union, UnionType}:
        (inner,) = (part for part in get_args(hint) if part is not NoneType)
        return _shape(inner, markers)
    for marker in markers:
        if isinstance(marker, Text | Whole | Quantity | Opaque | ConfigMap):
            return marker
    if hint is bool:
        return Flag()
    if origin is Literal:
        choices = get_args(hint)
        return Text(maximum=max(map(len, choices)), choices=choices)
    if is_dataclass(hint) and isinstance(hint, type):
        return record_of(hint)
    bounds = [marker for marker in markers if isinstance(marker, Bound)]
    if origin is tuple and bounds:
        return Items(_shape(get_args(hint)[0]), bounds[0].maximum, bounds[0].key)
    if origin is Mapping and bounds:
        return Entries(_shape(get_args(hint)[1]), bounds[0].maximum)
    raise TypeError(f"{hint!r} with {markers!r} does not say what it may hold")
