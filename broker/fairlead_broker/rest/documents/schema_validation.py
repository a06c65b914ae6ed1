"""Validation of a document against its JSON schema."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jsonschema import Draft202012Validator, ValidationError

_DEAR_FORMATS: Final = ("rfc3987_syntax", "isoduration")


def _import_jsonschema() -> Any:
    """Import jsonschema without the modules that check IRIs and durations.

    If rfc3987_syntax is installed (Jupyter and tools for CycloneDX bring it), jsonschema imports
    it, which builds forty parsers. That takes ten times as long as the rest of the import, in each
    broker, for a format that no schema here uses. jsonschema works without these modules.
    """
    hidden = [name for name in _DEAR_FORMATS if name not in sys.modules]
    # The type does not allow None, but None in `sys.modules` makes an import fail.
    modules = cast("dict[str, object]", sys.modules)
    modules.update(dict.fromkeys(hidden))
    try:
        return import_module("jsonschema")
    finally:
        for name in hidden:
            del modules[name]


_JSONSCHEMA: Final = _import_jsonschema()


def _refuse_by_pattern(
    _: Any, pattern: str, text: Any, __: Mapping[str, Any]
) -> Iterator[ValidationError]:
    """Check a text by ECMA 262: `$` matches only the end, not also before a last line end."""
    end = r"\Z" if pattern.endswith("$") else ""
    if isinstance(text, str) and not re.search(pattern.removesuffix("$") + end, text):
        yield _JSONSCHEMA.ValidationError(f"{text!r} does not match {pattern!r}")


_VALIDATOR: Final = cast(
    "type[Draft202012Validator]",
    _JSONSCHEMA.validators.extend(
        _JSONSCHEMA.Draft202012Validator, {"pattern": _refuse_by_pattern}
    ),
)


def first_problem(document: Any, schema: Mapping[str, Any]) -> ValidationError | None:
    """Return what is wrong with the document, if anything is.

    Where none of several schemas fits, it is what is wrong by the one that comes nearest.
    """
    problem: ValidationError | None = next(_VALIDATOR(schema).iter_errors(document), None)
    while problem is not None and problem.context:
        problem = max(problem.context, key=_nearness)
    if problem is not None:
        problem.message = _message(problem)
    return problem


def _nearness(problem: ValidationError) -> tuple[int, bool]:
    """Return how near a document comes to a schema that has this problem with it."""
    return len(problem.relative_path), problem.validator != "type"


def _message(problem: ValidationError) -> str:
    """Return the message without values in words of Python, such as None."""
    value: Any = problem.instance
    wanted: Any = problem.validator_value
    if problem.validator == "type":
        names = [wanted] if isinstance(wanted, str) else wanted
        return f"{_shown(value)} is not of type {', '.join(map(repr, names))}"
    if problem.validator == "enum":
        return f"{_shown(value)} is not one of {', '.join(map(_shown, wanted))}"
    return str(problem.message)


def _shown(value: Any) -> str:
    """Return a value as JSON, a text as it stands in other messages."""
    return repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
