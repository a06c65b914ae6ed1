"""What a document breaks of its JSON schema."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsonschema import Draft202012Validator, ValidationError

_IRI_GRAMMARS: Final = "rfc3987_syntax"


def _import_validator() -> type[Draft202012Validator]:
    """Import jsonschema without the grammars of IRIs.

    Where rfc3987_syntax is installed (Jupyter and tools for CycloneDX bring it), jsonschema imports
    it, which builds forty parsers: ten times the time of all else, in each broker, for a format
    that no schema here has. What isn't there jsonschema does without.
    """
    is_hidden = _IRI_GRAMMARS not in sys.modules
    if is_hidden:
        # The type has no None, but this is how an import is told that there is nothing to find.
        cast("dict[str, object]", sys.modules)[_IRI_GRAMMARS] = None
    try:
        return cast("type[Draft202012Validator]", import_module("jsonschema").Draft202012Validator)
    finally:
        if is_hidden:
            del sys.modules[_IRI_GRAMMARS]


_VALIDATOR: Final = _import_validator()


def first_problem(document: Any, schema: Mapping[str, Any]) -> ValidationError | None:
    """Return what is wrong with the document, if anything is."""
    return next(_VALIDATOR(schema).iter_errors(document), None)
