"""Brokers that a LogCluster keeps out of service: which orders to give, and what to report.

The controller stores an order with its reason, by which a LogCluster recognises its own orders. It
does not change people's orders (`fairlead broker fence`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead_operator.clusters.scale_down import named_brokers
from fairlead_operator.controller_client import ControllerClient, ControllerRefusedError
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import Manifest

OWN_REASON: Final = "spec.fencedBrokers of its LogCluster"
NOT_REGISTERED: Final = "it is not registered"


@dataclass(frozen=True, slots=True)
class FenceOrder:
    """Fence a broker, or return it to service."""

    broker_id: int
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class FenceReport:
    """The condition about fenced brokers."""

    fenced: tuple[int, ...] = ()
    """Brokers of the list that are out of service."""
    problems: tuple[str, ...] = ()
    """Why other brokers of the list are not."""


def decide_fences(
    wanted: Sequence[int], brokers: Sequence[Mapping[str, Any]]
) -> tuple[FenceOrder, ...]:
    """Return the orders to give; `brokers` are those of the controller's status."""
    orders = []
    for broker in sorted(brokers, key=lambda each: int(each["id"])):
        broker_id, reason = int(broker["id"]), broker.get("fencedBy")
        if broker_id in wanted and not reason:
            orders.append(FenceOrder(broker_id, True))
        elif broker_id not in wanted and reason == OWN_REASON:
            orders.append(FenceOrder(broker_id, False))
    return tuple(orders)


class FenceTeller:
    """The part of a reconciliation that concerns fenced brokers."""

    def __init__(self, controller: ControllerClient, events: EventWriter) -> None:
        self._controller = controller
        self._events = events

    async def tell(
        self, manifest: Manifest, wanted: Sequence[int], controller: Mapping[str, Any]
    ) -> FenceReport:
        """Give the orders that are due; a refused order is repeated in the next pass."""
        namespace, cluster = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        brokers = controller["brokers"]
        problems = dict.fromkeys(wanted, NOT_REGISTERED)
        for broker in brokers:
            problems.pop(int(broker["id"]), None)
        for order in decide_fences(wanted, brokers):
            reason = OWN_REASON if order.is_fenced else None
            try:
                await self._controller.fence(namespace, cluster, order.broker_id, reason)
            except ControllerRefusedError as error:
                problems[order.broker_id] = str(error)
                continue
            await self._events.emit(
                manifest,
                "BrokerFenced" if order.is_fenced else "BrokerUnfenced",
                f"broker {order.broker_id} "
                + ("is out of service" if order.is_fenced else "may be in service again"),
            )
        return FenceReport(
            fenced=tuple(each for each in sorted(wanted) if each not in problems),
            problems=tuple(
                f"broker {each}: {problem}" for each, problem in sorted(problems.items())
            ),
        )


def describe_fences(report: FenceReport) -> tuple[bool, str, str] | None:
    """Return status, reason and message of the condition; None if no broker is to be fenced."""
    if report.problems:
        return (False, "FenceRefused", "; ".join(report.problems))
    if report.fenced:
        verb = "is" if len(report.fenced) == 1 else "are"
        return (True, "AskedFor", f"{named_brokers(report.fenced)} {verb} out of service")
    return None
