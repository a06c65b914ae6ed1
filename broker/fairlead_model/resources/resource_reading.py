"""Read manifests into the dataclasses that declare them, and report all errors at once.

The API server has checked most of this with the CustomResourceDefinition. It is checked again
because the definition may be older than this code, and because `fairlead up` reads the same files
without an API server. An error names the path of its field. As for the API server, a null means
that the field is absent.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Generic, TypeVar

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
    Shape,
    Text,
    Whole,
    record_of,
)
from fairlead_model.resources.topic_manifest import API_VERSION, ManifestError, config_text, shown

T = TypeVar("T")
QUANTITY_PATTERN: Final = r"[0-9]{1,15}(\.[0-9]{1,9})?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?"
QUANTITY_NUMBER_MAX: Final = 10**15 - 1
"""Largest amount as a plain number: it has as many digits as the pattern allows."""
QUANTITY_HINT: Final = "write an amount such as 500m, 2 or 10Gi"
_ROOT_FIELDS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_QUANTITY: Final = re.compile(QUANTITY_PATTERN)


@dataclass(frozen=True, slots=True)
class RootRule(Generic[T]):
    """A condition that also uses the resource's name, as CEL and as Python."""

    cel: str
    message: str
    field: str = ""
    holds: Callable[[str, T], bool] | None = None
    holds_change: Callable[[str, T, T], bool] | None = None


@dataclass(frozen=True, slots=True)
class ManifestForm(Generic[T]):
    """The fields of one kind's manifests; a local manifest may omit what only clusters need."""

    kind: str
    spec: type[T]
    root_rules: tuple[RootRule[T], ...] = ()
    is_local: bool = False


def read_manifest(manifest: object, form: ManifestForm[T]) -> T:
    """Read the spec of a manifest; ManifestError lists every error in it."""
    if not isinstance(manifest, Mapping):
        raise ManifestError(["a manifest is a mapping with apiVersion, kind, metadata and spec"])
    reader = _Reader(form, manifest)
    spec = reader.read()
    if reader.problems:
        raise ManifestError(reader.problems)
    return spec


def change_problems(old: object, new: object) -> list[str]:
    """Return the rules about updates that a new spec breaks; both specs are valid by themselves."""
    return _change_problems(record_of(type(new)), old, new, "spec")


def _change_problems(record: Record, old: object, new: object, path: str) -> list[str]:
    problems = [
        f"{_join(path, rule.field)}: {rule.message}"
        for rule in record.rules
        if rule.holds_change is not None and not rule.holds_change(old, new)
    ]
    for member in record.members:
        before, after = getattr(old, member.attribute), getattr(new, member.attribute)
        is_comparable = before is not None and after is not None
        if isinstance(member.shape, Record) and is_comparable:
            problems += _change_problems(member.shape, before, after, f"{path}.{member.name}")
    return problems


class _Reader(Generic[T]):
    """Reads one manifest and collects its errors."""

    def __init__(self, form: ManifestForm[T], manifest: Mapping[Any, Any]) -> None:
        self.problems: list[str] = []
        self._form = form
        self._manifest = manifest
        metadata = manifest.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        self._name = name if isinstance(name, str) else ""

    def read(self) -> T:
        """Read the whole manifest; the result is valid only if there are no problems."""
        kind, version = self._manifest.get("kind"), self._manifest.get("apiVersion")
        if version != API_VERSION:
            self._report("apiVersion", f"expected {API_VERSION}, got {shown(version)}")
        if kind != self._form.kind:
            self._report("kind", f"expected {self._form.kind}, got {shown(kind)}")
        if not self._name:
            self._report("metadata.name", "a name is needed")
        self._check_unknown(self._manifest, _ROOT_FIELDS, "")
        spec = self._record(record_of(self._form.spec), self._manifest.get("spec"), "spec")
        if not self.problems:
            for rule in self._form.root_rules:
                if rule.holds is not None and not rule.holds(self._name, spec):
                    self._report(rule.field, rule.message)
        return spec  # type: ignore[no-any-return]  # _record gives what the record's type says

    def _report(self, path: str, problem: str) -> None:
        label = f"{self._form.kind} {self._name}".rstrip()
        self.problems.append(f"{label}: {path}: {problem}")

    def _value(self, shape: Shape, value: object, path: str) -> Any:
        match shape:
            case Record():
                return self._record(shape, value, path)
            case Items():
                return self._items(shape, value, path)
            case Entries():
                return self._entries(shape, value, path)
            case ConfigMap():
                return self._configs(shape, value, path)
            case Opaque(maximum=maximum):
                return self._mapping(value, maximum, path)
            case Text():
                return self._text(shape, value, path)
            case Quantity():
                return self._quantity(value, path)
            case Flag():
                return self._checked(isinstance(value, bool), value, path, "true or false")
            case Whole(minimum=minimum, maximum=maximum):
                fits = type(value) is int and minimum <= value <= maximum
                return self._checked(fits, value, path, f"a whole number of {minimum} to {maximum}")

    def _checked(self, fits: bool, value: object, path: str, expected: str) -> object:
        if not fits:
            self._report(path, f"expected {expected}, got {shown(value)}")
        return value

    def _record(self, record: Record, value: object, path: str) -> Any:
        if not isinstance(value, Mapping):
            self._report(path, f"expected a mapping, got {shown(value)}")
            return None
        found = len(self.problems)
        self._check_unknown(value, [member.name for member in record.members], path)
        values = {
            member.attribute: self._member(member, value.get(member.name), path)
            for member in record.members
        }
        if len(self.problems) > found:
            return None
        result = record.type(**values)
        for rule in record.rules:
            if rule.holds is not None and not rule.holds(result):
                self._report(_join(path, rule.field), rule.message)
        return result

    def _check_unknown(self, value: Mapping[Any, Any], names: Sequence[str], path: str) -> None:
        for name in value:
            if name not in names:
                near = get_close_matches(str(name), names, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self._report(_join(path, str(name)), f"unknown field{hint}")

    def _member(self, member: Member, value: object, path: str) -> Any:
        if value is not None:
            return self._value(member.shape, value, f"{path}.{member.name}")
        is_needed = member.is_cluster_only and not self._form.is_local
        if is_needed or member.default is NO_DEFAULT:
            self._report(f"{path}.{member.name}", "this field is needed")
        return member.default

    def _items(self, shape: Items, value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, Sequence) or isinstance(value, str):
            self._report(path, f"expected a list, got {shown(value)}")
            return ()
        if len(value) > shape.maximum:
            self._report(path, f"has {len(value)} entries, at most {shape.maximum} fit")
            return ()
        if shape.key:
            keys = [item.get(shape.key) for item in value if isinstance(item, Mapping)]
            for key in sorted({str(key) for key in keys if keys.count(key) > 1}):
                self._report(path, f"two entries have the {shape.key} {key}")
        return tuple(
            self._value(shape.item, item, f"{path}[{index}]") for index, item in enumerate(value)
        )

    def _entries(self, shape: Entries, value: object, path: str) -> dict[str, Any]:
        return {
            key: self._value(shape.value, item, f"{path}[{key}]")
            for key, item in self._mapping(value, shape.maximum, path).items()
            if item is not None
        }

    def _mapping(self, value: object, maximum: int, path: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self._report(path, f"expected a mapping, got {shown(value)}")
            return {}
        if len(value) > maximum:
            self._report(path, f"has {len(value)} entries, at most {maximum} fit")
            return {}
        return {str(key): item for key, item in value.items()}

    def _configs(self, shape: ConfigMap, value: object, path: str) -> dict[str, str | None]:
        texts: dict[str, str | None] = {}
        for name, item in self._mapping(value, shape.maximum, path).items():
            text = None if item is None else config_text(item)
            if item is not None and text is None:
                self._report(
                    f"{path}[{name}]", f"expected a text, number or truth value, got {shown(item)}"
                )
            elif text is not None and len(text) > shape.text_maximum:
                self._report(
                    f"{path}[{name}]",
                    f"has {len(text)} characters, at most {shape.text_maximum} fit",
                )
            elif (problem := shape.problem(name, text)) is not None:
                self._report(f"{path}[{name}]", problem)
            texts[name] = text
        return texts

    def _text(self, shape: Text, value: object, path: str) -> object:
        if shape.choices:
            choices = " or ".join(shape.choices)
            return self._checked(value in shape.choices, value, path, choices)
        if not isinstance(value, str):
            return self._checked(False, value, path, "a text")
        if not shape.minimum <= len(value) <= shape.maximum:
            expected = f"{shape.minimum} to {shape.maximum} characters"
            return self._checked(False, value, path, expected)
        if shape.pattern and re.fullmatch(shape.pattern, value) is None:
            self._report(path, shape.hint or f"{shown(value)} does not match {shape.pattern}")
        return value

    def _quantity(self, value: object, path: str) -> str:
        text = str(value) if type(value) in {int, str} else ""
        if _QUANTITY.fullmatch(text) is None:
            self._report(path, f"{shown(value)} is no amount: {QUANTITY_HINT}")
        return text


def _join(path: str, name: str) -> str:
    return ".".join(part for part in (path, name) if part)
