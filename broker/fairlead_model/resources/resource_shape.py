"""Shapes: what a field of a Fairlead resource may hold, read off annotated dataclasses.

A resource is declared once, as frozen dataclasses. An annotation carries what the type cannot
say: a text that describes the field, and a shape with its bounds.

    partitions: Annotated[int, "Partitions of the topic.", Whole(1, 100)] = 6

From that one declaration come the schema of the CustomResourceDefinition, its reference for
people, and the reader of manifests (`resource_reading`). Field names are snake case here and
camel case in manifests. Only the standard library is used: `fairlead up` reads resources too.
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
    """What a person has to write when the pattern does not match."""
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
    """An amount as Kubernetes writes it: `500m`, `2`, `10Gi`; a number is taken too."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A mapping that is handed on to Kubernetes as it is, which also checks it."""

    maximum: int = 32


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """Settings by name: texts, numbers and truth values; null leaves a setting alone."""

    maximum: int = 128
    text_maximum: int = 4096
    problem: Callable[[str, str | None], str | None] = field(default=lambda _name, _text: None)
    """What is wrong with a setting, in words; asked when manifests are read, never in a schema."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How many entries a list or mapping may have; `key` is the field that tells them apart."""

    maximum: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class ClusterOnly:
    """Marks a field that Kubernetes requires and `fairlead up` can do without."""


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
    """NO_DEFAULT for a required field; None for one that may be absent."""
    is_cluster_only: bool

    @property
    def is_required(self) -> bool:
        """Whether Kubernetes refuses the record without it."""
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

    A class lists its rules in `RULES`. A rule with `holds_change` is about old and new value of an
    update; the API server does not ask it when the object is made.
    """

    cel: str
    message: str
    """What is wrong and what to do, for a person who sees nothing else."""
    field: str = ""
    """The field it is shown at, below the record; the record itself where empty."""
    holds: Callable[[Any], bool] | None = None
    holds_change: Callable[[Any, Any], bool] | None = None


def camel_case(attribute: str) -> str:
    """Name an attribute as manifests do: `record_size` is `recordSize`."""
    head, *rest = attribute.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


_RECORDS: Final[dict[type[Any], Record]] = {}
"""Records that were read before; declarations do not change."""


def record_of(declared: type[Any]) -> Record:
    """Read a record off a dataclass; TypeError names a declaration that says too little."""
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
    """Find the shape of a type hint: one that is annotated, else the one that the type implies."""
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
