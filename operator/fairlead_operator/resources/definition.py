"""What a kind has besides its fields: its names, columns, subresources and rules about its name."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from fairlead_model.resources.resource_reading import RootRule

GROUP: Final = "fairlead.io"
VERSION: Final = "v1alpha1"
READY_REASON: Final = '.status.conditions[?(@.type=="Ready")].reason'
READY: Final = '.status.conditions[?(@.type=="Ready")].status'

ColumnType = Literal["string", "integer", "date"]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; a wide one is shown with `-o wide` only."""

    name: str
    path: str
    type: ColumnType = "string"
    description: str = ""
    is_wide: bool = False


AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the `scale` subresource finds its fields."""

    wanted: str
    present: str
    selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDefinition:
    """One kind; `spec` and `status` are the annotated dataclasses that declare its fields."""

    kind: str
    plural: str
    description: str
    spec: type[Any]
    status: type[Any] | None = None
    short_names: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    root_rules: tuple[RootRule[Any], ...] = ()
    scale: ScalePaths | None = None
    categories: tuple[str, ...] = ("fairlead",)
    example: str = field(default="", repr=False)
    """A manifest for the reference, as YAML."""

    @property
    def crd_name(self) -> str:
        """The name of its CustomResourceDefinition, and of its file."""
        return f"{self.plural}.{GROUP}"
