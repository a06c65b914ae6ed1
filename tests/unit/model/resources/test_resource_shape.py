from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from fairlead_model.resources.resource_reading import ManifestForm, read_manifest
from fairlead_model.resources.resource_shape import (
    Bound,
    Entries,
    Flag,
    Items,
    Record,
    Text,
    Whole,
    camel_case,
    record_of,
)
from fairlead_model.resources.topic_manifest import API_VERSION, ManifestError

SHORT = Text(maximum=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """An inner
    record."""

    size: Annotated[int, "Its size.", Whole(1, 3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """An outer record."""

    inner_part: Annotated[Inner | None, "Its inner part."] = None
    flag: Annotated[bool, "Its flag."] = True
    choice: Annotated[Literal["A", "Bcd"], "Its choice."] = "A"
    names: Annotated[tuple[Annotated[str, SHORT], ...], "Its names.", Bound(2)] = ()
    parts: Annotated[tuple[Inner, ...], "Its parts.", Bound(2, key="size")] = ()
    labels: Annotated[Mapping[str, Annotated[str, SHORT]], "Its labels.", Bound(2)] = field(
        default_factory=dict
    )


def test_shapes_follow_from_types_and_annotations() -> None:
    record = record_of(Outer)
    assert record.description == "An outer record."
    assert record_of(Inner).description == "An inner record."
    shapes = {member.name: member.shape for member in record.members}
    inner = shapes["innerPart"]
    assert isinstance(inner, Record)
    assert inner.members[0].shape == Whole(1, 3)
    assert shapes["flag"] == Flag()
    assert shapes["choice"] == Text(maximum=3, choices=("A", "Bcd"))
    assert shapes["names"] == Items(SHORT, 2)
    assert shapes["parts"] == Items(inner, 2, "size")
    assert shapes["labels"] == Entries(SHORT, 2)
    assert record_of(Outer) is record


def test_a_field_is_required_unless_it_has_a_default() -> None:
    assert [member.is_required for member in record_of(Inner).members] == [True]
    assert not any(member.is_required for member in record_of(Outer).members)


@dataclass(frozen=True)
class Undescribed:
    size: Annotated[int, Whole(1, 3)] = 1


@dataclass(frozen=True)
class Unbounded:
    names: Annotated[tuple[str, ...], "Its names."] = ()


@pytest.mark.parametrize("declared", [Undescribed, Unbounded, dict])
def test_a_declaration_that_says_too_little_is_an_error(declared: type[Any]) -> None:
    with pytest.raises(TypeError):
        record_of(declared)


def test_names_in_manifests_are_camel_case() -> None:
    assert camel_case("name") == "name"
    assert camel_case("recovery_p50_ms") == "recoveryP50Ms"


def manifest(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "Outer", "metadata": {"name": "o"}, "spec": spec}


def test_records_are_read_into_their_types() -> None:
    given = manifest(innerPart={"size": 2}, names=["a"], parts=[{"size": 1}], labels={"a": "b"})
    assert read_manifest(given, ManifestForm("Outer", Outer)) == Outer(
        inner_part=Inner(size=2), names=("a",), parts=(Inner(size=1),), labels={"a": "b"}
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"innerPart": {}}, "spec.innerPart.size: this field is needed"),
        ({"innerPart": {"size": 4}}, "spec.innerPart.size: expected a whole number of 1 to 3"),
        ({"innerPart": []}, "spec.innerPart: expected a mapping, got []"),
        ({"flag": 1}, "spec.flag: expected true or false, got 1"),
        ({"choice": "B"}, "spec.choice: expected A or Bcd, got 'B'"),
        ({"names": "a"}, "spec.names: expected a list, got 'a'"),
        ({"names": ["a", 1]}, "spec.names[1]: expected a text, got 1"),
        ({"names": ["abcdef"]}, "spec.names[0]: expected 0 to 5 characters, got 'abcdef'"),
        ({"names": ["a"] * 3}, "spec.names: has 3 entries, at most 2 fit"),
        ({"parts": [{"size": 1}] * 2}, "spec.parts: two entries have the size 1"),
        ({"labels": {"a": 1}}, "spec.labels[a]: expected a text, got 1"),
        ({"flags": True}, "spec.flags: unknown field; did you mean flag?"),
    ],
)
def test_problems_name_the_field(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(ManifestError) as refused:
        read_manifest(manifest(**spec), ManifestForm("Outer", Outer))
    assert refused.value.problems[0].startswith(f"Outer o: {problem}")
