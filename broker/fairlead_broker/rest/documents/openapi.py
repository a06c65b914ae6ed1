"""The OpenAPI 3.1 document, made from the table of operations. Pure."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.rest.operations import JSON, PATH_PARAMETERS, V2, V2_SHORT
from fairlead_broker.rest.problems import PROBLEM_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.rest.operations import Answer, Body, Operation, Parameter

PROBLEM_SCHEMA: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "error_code", "message"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "error_code": {"type": "integer"},
        "message": {"type": "string"},
    },
}
SECURITY_SCHEMES: Final = {
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "Name and password of a user, where fairlead.rest.authentication has BASIC.",
    },
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A token, where fairlead.rest.authentication has BEARER.",
    },
    "certificate": {
        "type": "mutualTLS",
        "description": "A client's certificate, where listener.name.rest.ssl.client.auth asks.",
    },
}
_ANY_OF_THEM: Final[tuple[dict[str, list[str]], ...]] = (
    {},
    *({name: list[str]()} for name in SECURITY_SCHEMES),
)
"""One scheme, or none: a broker's settings decide which ones it accepts."""
_ANY_REQUEST: Final = (400, 401, 403, 404, 406, 421, 429, 500, 503)
_WITH_BODY: Final = (408, 413, 415, 422)
_REFUSALS: Final = "Refusal"


def build_document(operations: Iterable[Operation[Any]], *, version: str) -> dict[str, Any]:
    """Return the document of all operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Fairlead's HTTP API",
            "version": version,
            "description": "Paths and shapes of Confluent's REST API v3 and v2, answered by "
            "brokers themselves. Errors are Problem Details (RFC 9457) with error_code and "
            "message.",
        },
        "paths": paths,
        "security": list(_ANY_OF_THEM),
        "components": {
            "schemas": {_REFUSALS: PROBLEM_SCHEMA},
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


def _describe(operation: Operation[Any]) -> dict[str, Any]:
    parameters = [_parameter(PATH_PARAMETERS[name], "path") for name in operation.path_names]
    parameters += [_parameter(each, "query") for each in operation.query]
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": _responses(operation),
    }
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = _body(operation.body)
    return described


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    schema = dict(parameter.schema)
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": place,
        "required": place == "path",
        "description": parameter.description,
        "schema": schema,
    }


def _body(body: Body) -> dict[str, Any]:
    content: dict[str, dict[str, Any]] = {}
    for media_type, schema in body.schemas.items():
        content[media_type] = {"schema": dict(schema)}
        if body.example is not None:
            content[media_type]["example"] = body.example
    return {"required": body.is_required, "content": content}


def _responses(operation: Operation[Any]) -> dict[str, Any]:
    responses = {str(status): _answer(answer) for status, answer in operation.answers.items()}
    statuses = {*_ANY_REQUEST, *operation.refusals}
    if operation.body is not None:
        statuses.update(_WITH_BODY)
    for status in sorted(statuses):
        responses.setdefault(str(status), _refusal(status))
    return responses


def _answer(answer: Answer) -> dict[str, Any]:
    described: dict[str, Any] = {"description": answer.description}
    if answer.schema is not None:
        described["content"] = {
            media_type: {"schema": dict(answer.schema)} for media_type in answer.media_types
        } | {media_type: {"schema": {"type": "string"}} for media_type in answer.streams}
    return described


def _refusal(status: int) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{_REFUSALS}"}
    return {
        "description": HTTPStatus(status).phrase,
        "content": {
            media_type: {"schema": schema} for media_type in (PROBLEM_TYPE, JSON, V2, V2_SHORT)
        },
    }
