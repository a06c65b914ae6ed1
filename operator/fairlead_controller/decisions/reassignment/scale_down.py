"""Which brokers a BrokerPool gives up, and which it keeps after all. Pure.

They are drained as by hand (`evacuation`), all or none of them, and each gets an intent in the same
decision: its pod will be removed, which no compare-and-swap fences. The intents show who has
ordered a drain. A broker that a person drains stays drained if the pool keeps it.

More is asked for than of a person, who can look before: no partition loses a machine or a rack.
"""

from collections.abc import Collection, Mapping, Sequence

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import Decision, ScaleDownPool
from fairlead_controller.decisions.intents import REMOVE_BROKER
from fairlead_controller.decisions.reassignment.evacuation import (
    begin_drain,
    end_drain,
    find_obstacle,
    find_receivers,
    held_by,
)
from fairlead_controller.decisions.reassignment.planning import host_of
from fairlead_controller.decisions.state import (
    ControllerChange,
    ControllerState,
    Intent,
    IntentChanged,
)
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import BrokerConfigsChanged
from fairlead_model.configs.broker_configs import BROKER_DRAIN
from fairlead_model.ids import BrokerId
from fairlead_model.session.refusals import RefusedError


def find_leaving(state: ControllerState) -> Mapping[BrokerId, str]:
    """Return the brokers that a pool gives up, and which pool."""
    return {
        int(intent_id.removeprefix(f"{REMOVE_BROKER}-")): intent.target
        for intent_id, intent in state.intents.items()
        if intent.action == REMOVE_BROKER
    }


def forget_leaving(state: ControllerState, broker_id: BrokerId) -> list[ControllerChange]:
    """Return the end of a broker's intent, if it has one."""
    is_leaving = broker_id in find_leaving(state)
    return [IntentChanged(_intent_id(broker_id), None)] if is_leaving else []


def decide_scale_down(
    state: ControllerState, event: ScaleDownPool, room: TableRoom | None = None
) -> Decision:
    """Drain the brokers that leave, and let those stay that a pool keeps; asked again, go on.

    The reply says what is in the way (`problem`). Then no broker is drained that is not already.
    """
    draft = Draft(state, room)
    try:
        _keep(draft, sorted(find_leaving(state).keys() & event.staying))
        leaving = [each for each in sorted(event.leaving) if each in state.image.brokers]
        fresh = [each for each in leaving if each not in state.cordoned]
        problem = _find_problem(draft.state, leaving, fresh)
        if fresh and not problem:
            _drain(draft, fresh, Intent(REMOVE_BROKER, event.pool, event.at_ms))
    except RefusedError as refusal:
        return Decision(reply=refusal)
    return draft.decision({"problem": problem})


def _keep(draft: Draft, brokers: Sequence[BrokerId]) -> None:
    for broker_id in brokers:
        draft.add(*forget_leaving(draft.state, broker_id))
        if broker_id in draft.state.cordoned:
            configs = dict(draft.state.image.configs_of_broker(broker_id))
            del configs[BROKER_DRAIN]
            draft.add(BrokerConfigsChanged(str(broker_id), configs))
        draft.explain(f"broker {broker_id} stays, and is not drained any more")
    end_drain(draft, brokers)


def _drain(draft: Draft, brokers: Sequence[BrokerId], intent: Intent) -> None:
    """Drain all of them at once, so that no leader moves from one to another."""
    for broker_id in brokers:
        configs = draft.state.image.configs_of_broker(broker_id)
        draft.add(
            IntentChanged(_intent_id(broker_id), intent),
            BrokerConfigsChanged(str(broker_id), {**configs, BROKER_DRAIN: "true"}),
        )
    begin_drain(draft, brokers)
    for broker_id in brokers:
        draft.explain(f"broker {broker_id} leaves BrokerPool {intent.target}, and is drained first")


def _intent_id(broker_id: BrokerId) -> str:
    return f"{REMOVE_BROKER}-{broker_id}"


def _find_problem(
    state: ControllerState, leaving: Sequence[BrokerId], fresh: Sequence[BrokerId]
) -> str:
    """Say what keeps brokers from being emptied; empty if nothing does."""
    receivers = find_receivers(state, leaving)
    obstacle = find_obstacle(state, leaving, receivers)
    if not obstacle and fresh:
        obstacle = _find_lost_spread(state, leaving, receivers)
    return obstacle or _find_last_copy(state, leaving)


def _find_lost_spread(
    state: ControllerState, leaving: Collection[BrokerId], receivers: Sequence[BrokerRegistration]
) -> str:
    """Say which partition would be on fewer machines or in fewer racks; empty if none."""
    gone = {*leaving, *state.cordoned}
    for topic, index, base in held_by(state, leaving):
        before = [state.image.brokers[each] for each in base if each in state.image.brokers]
        after = [each for each in before if each.broker_id not in gone] + list(receivers)
        for what, had, would_have in (
            ("racks", {each.rack for each in before}, {each.rack for each in after}),
            ("machines", set(map(host_of, before)), set(map(host_of, after))),
        ):
            if min(len(base), len(would_have)) < len(had):
                return (
                    f"partition {topic.name}-{index} is spread over {len(had)} {what}, of which "
                    f"{len(would_have)} would be left; add brokers there, or drain these by hand "
                    "first (fairlead broker drain) if that is meant"
                )
    return ""


def _find_last_copy(state: ControllerState, leaving: Collection[BrokerId]) -> str:
    """Name a partition that cannot be copied, because the broker that has it is down."""
    for topic, index, _ in held_by(state, leaving):
        partition = topic.partitions[index]
        holders = (*partition.isr, *partition.elr)
        if not partition.has_leader and not any(map(state.image.is_live, holders)):
            return (
                f"partition {topic.name}-{index} has no leader that could send a copy: it waits "
                "until a broker is back that holds it"
            )
    return ""
