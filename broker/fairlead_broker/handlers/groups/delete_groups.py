"""DeleteGroups (key 42), versions 0-2.

Behaviour: deletes empty groups with all their offsets, and answers when the tombstones are
committed. NON_EMPTY_GROUP while there are members, GROUP_ID_NOT_FOUND for none. Errors are per
group.
Versions:  2 flexible.
Missing:   nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.group.removal import delete_group
from fairlead_broker.handlers.groups.group_requests import check_group_names
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext


@handles(ApiKey.DELETE_GROUPS, versions=(0, 2), access=Access.BY_RESOURCE)
@once_awake
def delete_groups(
    request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Pending:
    names = list(dict.fromkeys(request.groups_names))
    check_group_names(names, "DeleteGroups")
    deletion = _Deletion(names, context)
    coordinator = context.broker.group_coordinator
    for name in names:
        settle = partial(deletion.settle, name)
        try:
            context.require(Operation.DELETE, ResourceType.GROUP, name)
            group = coordinator.find(name)
        except KafkaError as error:
            settle(error.code)
            continue
        if group is None:
            settle(ErrorCode.GROUP_ID_NOT_FOUND)
        else:
            delete_group(coordinator, group, settle)
    return deletion.reply()


class _Deletion:
    """A request whose groups are settled one by one."""

    def __init__(self, names: list[str], context: RequestContext) -> None:
        self._context: RequestContext | None = context
        self._names = names
        self._codes: dict[str, ErrorCode] = {}
        self._is_parked = False

    def settle(self, name: str, code: ErrorCode) -> None:
        """Take the outcome of a group's deletion."""
        self._codes[name] = code
        context = self._context
        if context is None:
            return
        if code is not ErrorCode.NONE:
            context.broker.metrics.errors[code.name] += 1
        if self._is_parked and len(self._codes) == len(self._names):
            self._context = None
            context.respond(self._response())

    def reply(self) -> DeleteGroupsResponse | Pending:
        """Return the answer, if there is nothing left to wait for."""
        if len(self._codes) == len(self._names) or self._context is None:
            return self._response()
        self._is_parked = True
        self._context.parked = self
        return PENDING

    def cancel(self) -> None:
        """Forget the connection, which is gone; the groups are deleted all the same."""
        self._context = None

    def _response(self) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(name, self._codes[name]) for name in self._names]
        )
