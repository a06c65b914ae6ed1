"""Forgetting a broker that is gone for good (UnregisterBroker, KIP-631), on evidence only. Pure.

Kafka checks only whether the id is known; the broker's replicas then stay on a broker that does not
exist. Here three conditions have to be met (I18): the broker is out of service, it has no session,
and no partition names it as a present or future replica. Draining achieves that, also for a dead
broker.

The broker's registration goes with its dynamic configs, the order to drain among them, and its
feature levels no longer matter. The controller no longer waits for it to confirm deletions: if it
comes back it is a new broker, and sets aside replicas that no record gives it.
"""

from collections.abc import Iterator
from dataclasses import replace

from fairlead_controller.decisions.cluster_wide_configs import follow_settings
from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import Decision, UnregisterBroker
from fairlead_controller.decisions.reassignment.scale_down import forget_leaving
from fairlead_controller.decisions.restored_holders import unheard_brokers
from fairlead_controller.decisions.state import BrokerDraining, ControllerState
from fairlead_model.cluster import (
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
    PartitionChanged,
    TopicChanged,
    TopicRemoved,
)
from fairlead_model.ids import BrokerId
from fairlead_model.session.refusals import RefusalCode, RefusedError

NAMED_PARTITIONS_MAX = 3
"""Partitions that a refusal names."""


def decide_unregistration(state: ControllerState, event: UnregisterBroker) -> Decision:
    """Unregister a broker, or say why it cannot be unregistered."""
    broker_id = event.broker_id
    problem = unregistration_problem(state, event)
    if problem is not None:
        return Decision(reply=problem)
    draft = Draft(state)
    draft.add(*_struck(state, broker_id), *forget_leaving(state, broker_id))
    if str(broker_id) in state.image.broker_configs:
        draft.add(BrokerConfigsChanged(str(broker_id), {}))
    if broker_id in state.draining:
        draft.add(BrokerDraining(broker_id, False))
    draft.add(BrokerRemoved(broker_id))
    draft.explain(f"broker {broker_id} is unregistered: it is out of service and holds nothing")
    follow_settings(draft, state.image)
    return draft.decision({})


def unregistration_problem(state: ControllerState, event: UnregisterBroker) -> RefusedError | None:
    """Say why a broker cannot be unregistered now; None if it can."""
    broker_id = event.broker_id
    known = state.image.brokers.get(broker_id)
    if known is None:
        return RefusedError(
            RefusalCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered"
        )
    if event.has_session or not known.fenced:
        return _refusal(broker_id, "it is in service, or was a moment ago; stop it for good first")
    if broker_id in unheard_brokers(state):
        return _refusal(
            broker_id,
            "it has not said what it holds since the metadata was restored; start it, or drain "
            "it if it is gone for good",
        )
    held = list(_partitions_with(state, broker_id))
    if held:
        names = ", ".join(held[:NAMED_PARTITIONS_MAX])
        more = f" and {len(held) - NAMED_PARTITIONS_MAX} more" * (len(held) > NAMED_PARTITIONS_MAX)
        return _refusal(
            broker_id,
            f"it is a replica of {names}{more}; move them first: fairlead broker drain {broker_id} "
            "--wait",
        )
    return None


def _partitions_with(state: ControllerState, broker_id: BrokerId) -> Iterator[str]:
    """Walk the names of partitions that a broker holds, or will hold."""
    for topic in sorted(state.image.topics(), key=lambda topic: topic.name):
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.replicas or broker_id in partition.queued_target:
                yield f"{topic.name}-{index}"


def _struck(state: ControllerState, broker_id: BrokerId) -> list[Change]:
    """Return what no longer waits for a broker to say that its data is gone."""
    changes: list[Change] = []
    for topic in sorted(state.image.topics(), key=lambda topic: topic.topic_id):
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.unconfirmed_removals:
                left = tuple([each for each in partition.unconfirmed_removals if each != broker_id])
                record = partition.changed(unconfirmed_removals=left)
                changes.append(PartitionChanged(topic.topic_id, index, record))
    for _, header in sorted(state.image.deleting.items()):
        waiting = header.unconfirmed_deletions - {broker_id}
        if not waiting:
            changes.append(TopicRemoved(header.topic_id))
        elif waiting != header.unconfirmed_deletions:
            changes.append(TopicChanged(replace(header, unconfirmed_deletions=waiting)))
    return changes


def _refusal(broker_id: BrokerId, why: str) -> RefusedError:
    return RefusedError(
        RefusalCode.POLICY_VIOLATION, f"broker {broker_id} cannot be unregistered: {why}"
    )
