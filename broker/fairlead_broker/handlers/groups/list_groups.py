"""ListGroups (key 16), versions 0-5.

Behaviour: the groups that this broker coordinates, those with offsets but without members too.
While some of its partitions are being read the list is incomplete: COORDINATOR_LOAD_IN_PROGRESS,
or COORDINATOR_NOT_AVAILABLE where one cannot be read. Beyond 5,000 groups others are served
meanwhile.
Versions:  3 flexible · 4 state, and a filter by states · 5 type, and a filter.
Missing:   nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.coordinator.shard import ShardState
from fairlead_broker.handlers.in_turns import in_turns
from fairlead_broker.handlers.once_awake import once_awake
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.api_registry import Pending, RequestContext

_GROUPS_PER_STEP: Final = 200


@handles(ApiKey.LIST_GROUPS, versions=(0, 5), access=Access.BY_RESOURCE)
@once_awake
def list_groups(
    request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse | Pending:
    coordinator = context.broker.group_coordinator
    groups: list[ListedGroup] = []

    def build() -> ListGroupsResponse:
        # Others may have been served meanwhile, and partitions have come here.
        states = {shard.state for shard in coordinator.runtime.shards.values()}
        return ListGroupsResponse(error_code=_why_incomplete(states), groups=groups)

    return in_turns(context, _steps(request, context, groups), len(coordinator.groups), build)


def _steps(
    request: ListGroupsRequest, context: RequestContext, groups: list[ListedGroup]
) -> Iterator[None]:
    states = {state.lower() for state in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    known = list(context.broker.group_coordinator.groups.values())
    for at in range(0, len(known), _GROUPS_PER_STEP):
        sees_all = context.would_allow_cluster(Operation.DESCRIBE)
        for group in known[at : at + _GROUPS_PER_STEP]:
            protocol = group.protocol
            state, kind = protocol.state_name, protocol.group_type
            if (
                not group.is_gone
                and (not types or kind in types)
                and (not states or state.lower() in states)
                and (
                    sees_all
                    or context.would_allow(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
                )
            ):
                groups.append(
                    ListedGroup(
                        group_id=group.group_id,
                        protocol_type=protocol.protocol_type,
                        group_state=state,
                        group_type=kind,
                    )
                )
        yield


def _why_incomplete(states: set[ShardState]) -> ErrorCode:
    if ShardState.FAILED in states:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if ShardState.LOADING in states:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.NONE
