"""The generator: version ranges, its reading of definitions, and what it writes."""

import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def generator_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator is no part of the distribution, so it is imported from its folder."""
    monkeypatch.syspath_prepend(str(ROOT / "broker"))


REQUEST: dict[str, Any] = {
    "apiKey": 42,
    "type": "request",
    "name": "PetRequest",
    "validVersions": "1-4",
    "flexibleVersions": "3+",
    "fields": [
        {"name": "PetName", "type": "string", "versions": "0+", "nullableVersions": "2+"},
        {"name": "Gone", "type": "int32", "versions": "0"},
        {"name": "LegCount", "type": "int32", "versions": "1+", "default": "-1"},
        {"name": "version", "type": "int16", "versions": "2+", "ignorable": True},
        {
            "name": "Tags",
            "type": "[]Tag",
            "versions": "1+",
            "fields": [
                {"name": "TagId", "type": "uuid", "versions": "1+"},
            ],
        },
        {"name": "Mood", "type": "int8", "versions": "4+", "taggedVersions": "4+", "tag": 0},
    ],
}
RESPONSE: dict[str, Any] = {
    "apiKey": 42,
    "type": "response",
    "name": "PetResponse",
    "validVersions": "1-4",
    "flexibleVersions": "3+",
    "fields": [
        {
            "name": "Tags",
            "type": "[]Tag",
            "versions": "1+",
            "fields": [
                {"name": "Data", "type": "records", "versions": "1+", "nullableVersions": "1+"},
            ],
        },
    ],
}


@pytest.mark.parametrize(
    ("field", "window", "expected"),
    [
        ("0+", "3-9", ""),
        ("5+", "3-9", "version >= 5"),
        ("0-5", "3-9", "version <= 5"),
        ("4-5", "3-9", "4 <= version <= 5"),
        ("3", "3", ""),
        ("0-2", "3-9", None),
        ("none", "3-9", None),
    ],
)
def test_conditions_are_as_short_as_the_window_allows(
    field: str, window: str, expected: str | None
) -> None:
    from codegen.versions import VersionRange

    assert VersionRange.parse(field).condition(VersionRange.parse(window)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TopicId", "topic_id"),
        ("IsrNodes", "isr_nodes"),
        ("ResultsByTopicV3AndBelow", "results_by_topic_v3_and_below"),
        ("CurrentISR", "current_isr"),
        ("version", "version"),
        ("Class", "class_"),
    ],
)
def test_names_become_those_of_python(name: str, expected: str) -> None:
    from codegen.schema import snake_case

    assert snake_case(name) == expected


def jar(folder: Path, *definitions: dict[str, Any]) -> Path:
    path = folder / "clients.jar"
    with zipfile.ZipFile(path, "w") as archive:
        for each in definitions:
            text = "// A licence.\n" + json.dumps(each, indent=1).replace(
                '"fields": [', '"fields": [ // comment with "quotes"\n'
            )
            archive.writestr(f"common/message/{each['name']}.json", text)
        archive.writestr("common/message/README.md", "not a definition")
    return path


def load(source: str, folder: Path) -> Any:
    path = folder / "pet.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("generated_pet", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generated_pet"] = module
    spec.loader.exec_module(module)
    return module


def generate(folder: Path) -> str:
    from codegen.emit_module import api_module, build_api
    from codegen.schema import parse_message, read_definitions

    definitions = read_definitions(jar(folder, REQUEST, RESPONSE))
    return api_module(
        build_api(
            parse_message(definitions["PetRequest"]), parse_message(definitions["PetResponse"])
        )
    )


def test_generated_modules_do_what_the_definition_says(tmp_path: Path) -> None:
    pet = load(generate(tmp_path), tmp_path)
    request = pet.PetRequest("Rex", 4, 7, [pet.RequestTag(bytes(16))])
    assert request.encode(1) == [b"\0\3Rex" + b"\0\0\0\4" + b"\0\0\0\1" + bytes(16)]
    assert request.encode(3) == [
        b"\4Rex" + b"\0\0\0\4" + b"\0\7" + b"\2" + bytes(16) + b"\0" + b"\0"
    ]
    happy = pet.PetRequest(None, mood=3)
    assert happy.encode(4) == [b"\0" + b"\xff\xff\xff\xff" + b"\0\0" + b"\1" + b"\1\0\1\3"]
    for version, message in ((2, request), (3, request), (4, happy)):
        (body,) = message.encode(version)
        assert pet.PetRequest.decode(memoryview(body), 0, version) == (message, len(body))
    assert [each.__name__ for each in (pet.RequestTag, pet.ResponseTag)] == [
        "RequestTag",
        "ResponseTag",
    ]


def test_generating_twice_gives_the_same(tmp_path: Path) -> None:
    first = generate(tmp_path)
    assert generate(tmp_path) == first
    assert max(map(len, first.splitlines())) <= 100


def test_unknown_types_are_named(tmp_path: Path) -> None:
    from codegen.schema import SchemaError, parse_message, read_definitions

    odd = {**REQUEST, "fields": [{"name": "A", "type": "int128", "versions": "0+"}]}
    with pytest.raises(SchemaError, match="A: unknown type int128"):
        parse_message(odd)
    missing = {**REQUEST, "fields": [{"name": "A", "type": "[]Nowhere", "versions": "0+"}]}
    with pytest.raises(SchemaError, match="A: nothing defines Nowhere"):
        parse_message(missing)
    empty = tmp_path / "empty.jar"
    zipfile.ZipFile(empty, "w").close()
    with pytest.raises(SchemaError, match="no message definitions"):
        read_definitions(empty)


def test_checking_tells_changed_missing_and_left_over_files(tmp_path: Path) -> None:
    from codegen.__main__ import differences, write_sources

    sources = {"a.py": "x = 1\n", "b.py": "y = 2\n"}
    (tmp_path / "old.py").write_text("z = 3\n")
    assert differences(sources, tmp_path)
    write_sources(sources, tmp_path)
    assert differences(sources, tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.py", "b.py"]
    (tmp_path / "a.py").write_text("x = 5\n")
    assert "-x = 5" in differences(sources, tmp_path)
