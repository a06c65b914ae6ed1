"""Code that the handlers of the group APIs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fairlead_broker.limits import COORDINATOR_KEYS_LENGTH_MAX, GROUPS_PER_REQUEST_MAX
from fairlead_model.features import GROUP_VERSION
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.broker import Broker

_Result = TypeVar("_Result")
_CONSUMER_PROTOCOL = "consumer"


def check_group_id(group_id: str) -> None:
    """Members need a group with a name; only old standalone commits may go without."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")


def check_group_names(names: Sequence[str], api: str) -> None:
    """Raise RemoteProtocolError if a request names too many groups, or too long ones together."""
    if len(names) > GROUPS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"{api} names {len(names)} groups")
    length = sum(map(len, names))
    if length > COORDINATOR_KEYS_LENGTH_MAX:
        raise RemoteProtocolError(f"{api} names groups of {length} characters")


def require_consumer_protocol(broker: Broker) -> None:
    """Raise KafkaError UNSUPPORTED_VERSION if the protocol of KIP-848 is switched off."""
    if _CONSUMER_PROTOCOL not in broker.settings.group_coordinator_rebalance_protocols:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "the broker does not offer the consumer protocol"
        )
    if not broker.image.features.level(GROUP_VERSION):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"the cluster has turned off {GROUP_VERSION}"
        )


class ParkedMember(Generic[_Result]):
    """A join or sync on its way; `park` when the handler returns without an answer."""

    __slots__ = ("_build", "_context", "_group_id", "_is_parked")

    def __init__(
        self,
        context: RequestContext,
        group_id: str,
        build: Callable[[_Result, int], Any],
    ) -> None:
        self._context: RequestContext | None = context
        self._group_id = group_id
        self._build = build
        self._is_parked = False

    def park(self) -> None:
        """Wait, unless the answer came at once."""
        context = self._context
        if context is not None:
            context.parked = self
            self._is_parked = True
            context.broker.group_coordinator.parked_count += 1

    def answer(self, result: Any) -> None:
        """Send the group's decision."""
        context = self._leave()
        if context is not None:
            if result.error is not ErrorCode.NONE:
                context.broker.metrics.errors[result.error.name] += 1
            context.respond(self._build(result, context.version))

    def cancel(self) -> None:
        """Forget the connection, which is gone; the member stays until its session is over."""
        context = self._leave()
        if context is not None:
            coordinator = context.broker.group_coordinator
            group = coordinator.groups.get(self._group_id)
            if group is not None:
                group.protocol.forget_waiter(self)
                coordinator.runtime.schedule(group)

    def _leave(self) -> RequestContext | None:
        context, self._context = self._context, None
        if context is not None and self._is_parked:
            context.broker.group_coordinator.parked_count -= 1
        return context
