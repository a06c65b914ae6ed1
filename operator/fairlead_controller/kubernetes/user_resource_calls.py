"""Carries User resources from the operator's process to the controller, some per request.

A request holds declarations to apply and names to forget:

    {"apply": [declaration, …], "forget": ["orders-app", …],
     "isComplete": false, "keep": [resource, …]}

Declarations are in the plain form of `fairlead_model.resources.user_declaration`. With
`isComplete`, they and the names in `keep` are all existing resources: what other resources declared
is revoked. The reply has, for each resource, `state` (ok, waiting, refused), `reason` and
`message`.

A resource is forgotten once all brokers in service have applied that. Until then its state is
*waiting*, and the caller asks again. A fenced broker may not get the change: without a controller
the last known rules hold.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import ApplyUserResources
from fairlead_controller.decisions.security.user_resources import Result, build_user_result
from fairlead_controller.kubernetes.sliced_calls import submit_slices
from fairlead_controller.sessions.server import SessionServer
from fairlead_model.codec import CodecError
from fairlead_model.resources.user_declaration import UserDeclaration, decode_declaration

SLICE_USERS: Final = 50
"""Resources decided in one slice: a slice passes over all rules of the cluster once."""
USERS_PER_REQUEST_MAX: Final = 100_000
HEARD_S: Final = 2.0
"""How long a request waits until brokers have applied the revocations, by their heartbeats."""


class UserRequestError(ValueError):
    """The request is malformed."""


@dataclass(frozen=True, slots=True)
class UserRequest:
    """A parsed request."""

    apply: tuple[UserDeclaration, ...]
    forget: tuple[str, ...]
    complete: frozenset[str] | None


async def apply_users(
    controller: Controller, sessions: SessionServer, request: Mapping[str, Any]
) -> dict[str, Any]:
    """Apply a request; return the results once durable, and once brokers apply revocations.

    UserRequestError if the request is malformed; RefusedError if the controller is overloaded or
    ends.
    """
    wanted = read_user_request(request)
    results: dict[str, Result] = await submit_slices(controller, slice_users(wanted))
    if wanted.forget:
        behind = await sessions.until_heard(HEARD_S)
        if behind:
            message = f"brokers {sorted(behind)} have not said yet that they go by it"
            waiting = build_user_result("waiting", "BrokersBehind", message)
            results |= dict.fromkeys(wanted.forget, waiting)
    return {"results": results}


def read_user_request(request: Mapping[str, Any]) -> UserRequest:
    """Check the form of a request; UserRequestError if it is malformed."""
    entries, forget = _list(request, "apply"), _list(request, "forget")
    if len(entries) + len(forget) > USERS_PER_REQUEST_MAX:
        raise UserRequestError(f"more than {USERS_PER_REQUEST_MAX} resources in one request")
    try:
        apply = tuple(map(decode_declaration, entries))
    except (CodecError, AttributeError) as error:
        raise UserRequestError(f"apply: {error}") from None
    complete = None
    if request.get("isComplete"):
        complete = frozenset(map(str, _list(request, "keep"))) | {each.resource for each in apply}
    return UserRequest(apply, tuple(map(str, forget)), complete)


def slice_users(wanted: UserRequest) -> Iterable[ApplyUserResources]:
    """Yield the request in parts, revocations first."""
    if wanted.complete is not None:
        yield ApplyUserResources(complete=wanted.complete)
    for at in range(0, len(wanted.forget), SLICE_USERS):
        yield ApplyUserResources(forget=wanted.forget[at : at + SLICE_USERS])
    for at in range(0, len(wanted.apply), SLICE_USERS):
        yield ApplyUserResources(apply=wanted.apply[at : at + SLICE_USERS])


def _list(request: Mapping[str, Any], name: str) -> list[Any]:
    value = request.get(name) or []
    if not isinstance(value, list):
        raise UserRequestError(f"{name}: expected a list")
    return value
