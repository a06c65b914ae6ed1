"""Documents against JSON schemas, and what their validator leaves alone when it is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead_broker.rest.documents.schema_validation import first_problem

SCHEMA = {
    "type": "object",
    "properties": {"partitions": {"type": "array", "items": {"type": "integer"}}},
    "required": ["partitions"],
}


def test_a_document_that_fits_has_no_problem() -> None:
    assert first_problem({"partitions": [0, 1]}, SCHEMA) is None


def test_a_problem_says_where_and_what() -> None:
    problem = first_problem({"partitions": [0, "one"]}, SCHEMA)
    assert problem is not None
    assert list(problem.absolute_path) == ["partitions", 1]
    assert problem.message == "'one' is not of type 'integer'"


@pytest.mark.parametrize(
    ("document", "schema", "message"),
    [
        (None, {"type": "string"}, "null is not of type 'string'"),
        ([True], {"type": "object"}, "[true] is not of type 'object'"),
        ("x", {"enum": [True, "a", None]}, "'x' is not one of true, 'a', null"),
        (7, {"anyOf": [{"type": "integer", "maximum": 5}, {"type": "string"}]},
         "7 is greater than the maximum of 5"),
        ({"b": 1}, {"anyOf": [{"required": ["a"]}, {"properties": {"b": {"type": "string"}}}]},
         "1 is not of type 'string'"),
    ],
)  # fmt: skip
def test_a_problem_says_what_is_wrong_in_words_of_json(
    document: object, schema: dict[str, object], message: str
) -> None:
    problem = first_problem(document, schema)
    assert problem is not None
    assert problem.message == message


@pytest.mark.parametrize(("text", "fits"), [("ab", True), ("ab\n", False), ("b", False), (1, True)])
def test_a_pattern_ends_where_the_text_does(text: object, fits: bool) -> None:
    assert (first_problem(text, {"pattern": "^a[b]$"}) is None) is fits


def test_a_pattern_without_an_end_fits_anywhere() -> None:
    assert first_problem("xaby", {"pattern": "ab"}) is None


@pytest.mark.parametrize("name", ["rfc3987_syntax", "isoduration"])
def test_formats_that_no_schema_has_are_left_to_who_wants_them(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("print('dear')\nis_valid_syntax = None\n")
    code = (
        f"import fairlead_broker.rest.request\nprint('request')\nimport {name}\nprint('wanted')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["request", "dear", "wanted"]
