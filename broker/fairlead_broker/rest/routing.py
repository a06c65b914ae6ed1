"""Which operation a method and a path mean, and with which parameters. Pure.

The raw path is split at its slashes, and only then is each part percent-decoded, once. So `%2F` is
a character of a name and never a separator, and `..` is a name like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

from fairlead_broker.rest.operations import PATH_PARAMETERS
from fairlead_broker.rest.problems import UNKNOWN_PARTITION, ProblemError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairlead_broker.rest.operations import Parameter
    from fairlead_broker.rest.request import RestOperation

_ANY: Final = "{}"
_QUERY_FIELDS_MAX: Final = 50
_CODES_OF_UNKNOWN: Final = {"partition_id": UNKNOWN_PARTITION}
"""Error codes of path parameters that name nothing, where 404 alone does not say it."""


class Match(NamedTuple):
    """An operation and the parameters of its path."""

    operation: RestOperation
    parameters: dict[str, Any]


class Router:
    """A tree of path segments; literal ones are tried before parameters."""

    def __init__(self, operations: Iterable[RestOperation]) -> None:
        self._root: dict[str, Any] = {}
        self._parts_max = 0
        self._operations: dict[str, RestOperation] = {}
        """One operation of each method."""
        for operation in operations:
            self._operations.setdefault(operation.method, operation)
            node = self._root
            parts = operation.path.split("/")[1:]
            self._parts_max = max(self._parts_max, len(parts))
            for part in parts:
                node = node.setdefault(_ANY if part.startswith("{") else part, {})
            node.setdefault("", {})[operation.method] = operation

    def find(self, method: str, raw_path: str) -> Match:
        """Return the operation and its parameters; ProblemError 400, 404 or 405."""
        parts = self._parts(raw_path)
        methods = self._methods(self._root, parts, 0)
        if methods is None:
            raise ProblemError(404, f"there is nothing at {shown(raw_path)}")
        operation = methods.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise ProblemError(
                405,
                f"{method} is not what can be done here",
                headers={"Allow": ", ".join(allowed(methods))},
            )
        values = [
            part
            for part, template in zip(parts, operation.path.split("/")[1:], strict=True)
            if template.startswith("{")
        ]
        return Match(
            operation,
            {
                name: _parameter(
                    PATH_PARAMETERS[name], value, status=404, code=_CODES_OF_UNKNOWN.get(name)
                )
                for name, value in zip(operation.path_names, values, strict=True)
            },
        )

    def methods_at(self, raw_path: str) -> list[str]:
        """Return the methods that a path has; none if there is no such path.

        `*` means this server, whatever the path (RFC 9110, section 9.3.7).
        """
        if raw_path == "*":
            return allowed(self._operations)
        methods = self._methods(self._root, self._parts(raw_path), 0)
        return [] if methods is None else allowed(methods)

    def _parts(self, raw_path: str) -> list[str]:
        """Return the parts of a path; none if there are too many: a line may have 8,000."""
        if raw_path.count("/") > self._parts_max:
            return []
        return [_decoded(part) for part in raw_path.split("/")[1:]]

    def _methods(
        self, node: Mapping[str, Any], parts: list[str], at: int
    ) -> dict[str, RestOperation] | None:
        if at == len(parts):
            return node.get("")
        part = parts[at]
        if part and part != _ANY and part in node:
            found = self._methods(node[part], parts, at + 1)
            if found is not None:
                return found
        if part and _ANY in node:
            return self._methods(node[_ANY], parts, at + 1)
        return None


def allowed(methods: Mapping[str, RestOperation]) -> list[str]:
    """Return the value of Allow, sorted."""
    return sorted({*methods, "OPTIONS", *(("HEAD",) if "GET" in methods else ())})


def read_query(parameters: Iterable[Parameter], raw_query: str) -> dict[str, Any]:
    """Return the parameters of a query, or their defaults; ProblemError 400.

    Unknown names are ignored, because proxies and browsers add their own.
    """
    try:
        pairs = parse_qsl(
            raw_query,
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_QUERY_FIELDS_MAX,
        )
    except (UnicodeDecodeError, ValueError) as error:
        raise ProblemError(400, "the query cannot be read") from error
    values: dict[str, Any] = {}
    known = {parameter.name: parameter for parameter in parameters}
    for name, text in pairs:
        if name in values:
            raise ProblemError(400, f"{name} stands more than once in the query")
        if name in known:
            values[name] = _parameter(known[name], text, status=400)
    return {name: parameter.default for name, parameter in known.items()} | values


def _decoded(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError as error:
        raise ProblemError(400, "the path is not UTF-8") from error


def _parameter(parameter: Parameter, text: str, *, status: int, code: int | None = None) -> Any:
    """Convert a text to the type of the parameter's schema; ProblemError with `status`, `code`."""
    schema = parameter.schema
    kind = schema["type"]
    if kind == "integer":
        is_number = text.isascii() and text.removeprefix("-").isdecimal() and len(text) <= 20
        value = int(text) if is_number else None
        lowest, highest = schema.get("minimum"), schema.get("maximum")
        if (
            value is None
            or (lowest is not None and value < lowest)
            or (highest is not None and value > highest)
        ):
            span = f" from {lowest} to {highest}" if lowest is not None else ""
            problem = f"{parameter.name}={shown(text)}: a whole number{span}"
            raise ProblemError(status, problem, code=code)
        return value
    if kind == "boolean":
        if text not in ("true", "false"):
            raise ProblemError(status, f"{parameter.name}={shown(text)}: true or false")
        return text == "true"
    choices = schema.get("enum")
    if choices is not None and text not in choices:
        options = ", ".join(choices)
        raise ProblemError(status, f"{parameter.name}={shown(text)}: one of {options}")
    return text
