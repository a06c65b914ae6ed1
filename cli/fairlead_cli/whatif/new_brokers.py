"""The cluster with more brokers, after a plan has filled them. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead_controller.decisions.balance.facts import BalancedBroker
from fairlead_controller.decisions.state import BrokerConfirmed, ControllerState
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import BrokerChanged, PartitionChanged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_controller.decisions.balance.facts import BalancePlan


def imagine_brokers(brokers: Sequence[BalancedBroker], count: int) -> list[BalancedBroker]:
    """Return `count` empty brokers, in the racks with the fewest first.

    Each is on its own machine, unless all existing brokers share one.
    """
    next_id = max((each.broker_id for each in brokers), default=-1) + 1
    racks = Counter(each.rack for each in brokers)
    hosts = {each.host for each in brokers}
    is_one_machine = len(brokers) > 1 and len(hosts) == 1
    capacity = sum(each.capacity for each in brokers) // max(1, len(brokers)) or 1
    imagined = []
    for broker_id in range(next_id, next_id + count):
        rack = min(racks, key=lambda each: (racks[each], each or ""), default=None)
        racks[rack] += 1
        host = next(iter(hosts)) if is_one_machine else ""
        imagined.append(BalancedBroker(broker_id, host=host, rack=rack, capacity=capacity))
    return imagined


def after_plan(
    state: ControllerState, added: Sequence[BalancedBroker], plan: BalancePlan
) -> ControllerState:
    """Return the state with more brokers after all moves, with preferred leaders."""
    changed = state.apply(
        [
            BrokerChanged(
                BrokerRegistration(
                    each.broker_id, 1, host_name=each.host, rack=each.rack, fenced=False
                )
            )
            for each in added
        ]
    ).apply(BrokerConfirmed(each.broker_id) for each in added)
    moves = []
    for move in plan.moves:
        topic = changed.image.topic(move.topic)
        if topic is None:
            continue
        # A plan moves only partitions with all replicas in sync, so all are in sync in the end.
        record = replace(
            topic.partitions[move.index],
            replicas=move.after,
            isr=move.after,
            leader=move.after[0],
            directories=(),
        )
        moves.append(PartitionChanged(topic.topic_id, move.index, record))
    return changed.apply(moves)
