"""What a document breaks of its JSON schema."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsonschema import Draft202012Validator, ValidationError

_DEAR_FORMATS: Final = ("rfc3987_syntax", "isoduration")


def _import_validator() -> type[Draft202012Validator]:
    """Import jsonschema without what checks IRIs and durations.

    Where rfc3987_syntax is installed (Jupyter and tools for CycloneDX bring it), jsonschema imports
    it, which builds forty parsers: ten times the time of all else, in each broker, for a format
    that no schema here has. What isn't there jsonschema does without.
    """
    hidden = [name for name in _DEAR_FORMATS if name not in sys.modules]
    # The type has no None, but this is how an import is told that there is nothing to find.
    modules = cast("dict[str, object]", sys.modules)
    modules.update(dict.fromkeys(hidden))
    try:
        return cast("type[Draft202012Validator]", import_module("jsonschema").Draft202012Validator)
    finally:
        for name in hidden:
            del modules[name]


_VALIDATOR: Final = _import_validator()


def first_problem(document: Any, schema: Mapping[str, Any]) -> ValidationError | None:
    """Return what is wrong with the document, if anything is."""
    return next(_VALIDATOR(schema).iter_errors(document), None)
