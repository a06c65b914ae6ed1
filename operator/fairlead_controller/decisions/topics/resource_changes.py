"""Effects of new, changed and deleted Topic resources on topics. Pure.

The cost of a call depends on what it names: the resources are found by the index
`ControllerState.declared`, and only a complete set visits all declared topics. A resource never
takes a topic from another resource that still declares it; the caller, who knows all resources,
decides which one has to forget it first.
"""

from typing import Any

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import ApplyTopicResources, Decision, ForgetTopic
from fairlead_controller.decisions.placement import RandomSource
from fairlead_controller.decisions.reassignment.resizing import Resizer
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_controller.decisions.topics.creation import check_new_name
from fairlead_controller.decisions.topics.declared_topics import (
    PASSING,
    adopt_topic,
    check_existing,
    create_declared_topic,
    grow_declared_topic,
    release_topic,
    resize_declared_topic,
)
from fairlead_controller.decisions.topics.deletion_and_growth import delete_topic
from fairlead_model.cluster import TopicImage, TopicOrigin
from fairlead_model.configs.config_values import ConfigError
from fairlead_model.ids import is_internal_topic, topic_id_text
from fairlead_model.resources.topic_manifest import TopicSpec
from fairlead_model.session.refusals import RefusalCode, RefusedError

Result = dict[str, Any]


def build_result(
    state: str, reason: str, message: str = "", topic_id: bytes | None = None
) -> Result:
    """Return the result for one resource: `state` is ok, waiting or refused."""
    text = None if topic_id is None else topic_id_text(topic_id)
    return {"state": state, "reason": reason, "message": message, "topicId": text}


def decide_topic_resources(
    state: ControllerState,
    event: ApplyTopicResources,
    random: RandomSource,
    room: TableRoom | None = None,
) -> Decision:
    """Forget resources, then apply others; each is decided by itself.

    A resource that waits for brokers is not remembered: its owner asks again.
    """
    draft = Draft(state, room)
    resizer = Resizer(draft)
    results: dict[str, Result] = {}
    for forgotten in event.forget:
        results[forgotten.resource] = _forget(draft, forgotten)
    if event.complete is not None:
        _release_vanished(draft, event.complete)
    for spec in event.apply:
        results[spec.resource] = _apply(draft, spec, event, random, resizer)
    return draft.decision({"results": results})


def _forget(draft: Draft, forgotten: ForgetTopic) -> Result:
    topic = _topic_of(draft.state, forgotten)
    if topic is None:
        return build_result("ok", "Unknown", "it declares no topic")
    if forgotten.is_deleting_topic:
        delete_topic(draft, topic)
        return build_result("ok", "Deleted", f"topic {topic.name!r} is deleted")
    if topic.header.resource:
        release_topic(draft, topic)
    message = f"topic {topic.name!r} stays, declared by nobody"
    return build_result("ok", "Retained", message, topic.topic_id)


def _topic_of(state: ControllerState, forgotten: ForgetTopic) -> TopicImage | None:
    topic_id = state.declared.get(forgotten.resource)
    if topic_id is not None:
        return state.image.topic_by_id(topic_id)
    topic = state.image.topic(forgotten.topic_name) if forgotten.topic_name else None
    if topic is None or topic.header.resource or topic.header.origin is not TopicOrigin.KAFKA:
        return None
    return topic


def _release_vanished(draft: Draft, complete: frozenset[str]) -> None:
    declared = draft.state.declared
    for resource in sorted(set(declared) - complete):
        release_topic(draft, draft.state.image.topics_by_id[declared[resource]])


def _apply(
    draft: Draft,
    spec: TopicSpec,
    event: ApplyTopicResources,
    random: RandomSource,
    resizer: Resizer,
) -> Result:
    try:
        return _applied(draft, spec, event, random, resizer)
    except ConfigError as error:
        return build_result("refused", "InvalidSpec", f"spec.config: {error.message}")
    except RefusedError as refusal:
        if refusal.code not in PASSING:
            path = "spec.config: " if refusal.code is RefusalCode.INVALID_CONFIG else ""
            return build_result("refused", "InvalidSpec", f"{path}{refusal.message}")
        topic = draft.state.image.topic(spec.topic_name)
        topic_id = None if topic is None else topic.topic_id
        message = f"spec.replicationFactor: {refusal.message}"
        if refusal.code is RefusalCode.REASSIGNMENT_IN_PROGRESS:
            return build_result("waiting", "ReassignmentInProgress", message, topic_id)
        message += "; it goes on when more brokers are up"
        return build_result("waiting", "TooFewBrokers", message, topic_id)


def _applied(
    draft: Draft,
    spec: TopicSpec,
    event: ApplyTopicResources,
    random: RandomSource,
    resizer: Resizer,
) -> Result:
    topic = draft.state.image.topic(spec.topic_name)
    problem = _claim_problem(draft.state, topic, spec)
    if problem is not None:
        return problem
    is_new = topic is None
    is_short = topic is not None and adopt_topic(draft, topic, spec)
    if event.waits_for and (is_new or is_short):
        if is_new:
            check_new_name(draft.state, spec.topic_name, is_internal=False)
        topic_id = None if topic is None else topic.topic_id
        return build_result("waiting", "WaitingForBrokers", event.waits_for, topic_id)
    if is_new:
        create_declared_topic(
            draft,
            spec,
            random,
            default_partitions=event.default_partitions,
            default_replication_factor=event.default_replication_factor,
        )
    elif is_short:
        grow_declared_topic(draft, spec, random)
        resize_declared_topic(draft, spec, resizer)
    held = draft.state.image.topic(spec.topic_name)
    return build_result("ok", "Applied", topic_id=None if held is None else held.topic_id)


def _claim_problem(
    state: ControllerState, topic: TopicImage | None, spec: TopicSpec
) -> Result | None:
    """Say why a resource cannot have this topic with any set of brokers; empty if it can."""
    path = "spec.topicName"
    if is_internal_topic(spec.topic_name):
        message = f"{path}: {spec.topic_name!r} belongs to the cluster itself"
        return build_result("refused", "InvalidSpec", message)
    held = state.declared.get(spec.resource)
    if held is not None and (topic is None or topic.topic_id != held):
        name = state.image.topics_by_id[held].name
        message = f"{path}: the resource declares topic {name!r}; a topic cannot be renamed"
        return build_result("refused", "InvalidSpec", message)
    if topic is None:
        return None
    if topic.header.resource not in {"", spec.resource}:
        message = f"{path}: topic {topic.name!r} is declared by Topic {topic.header.resource}"
        return build_result("refused", "Conflict", message)
    if not (topic.header.resource or spec.may_adopt):
        message = (
            f"{path}: topic {topic.name!r} exists, and no Topic declares it: only one of the "
            "cluster's own namespace may take it up, or one whose namespace has a topicPrefix"
        )
        return build_result("refused", "Conflict", message)
    try:
        check_existing(topic, spec)
    except RefusedError as refusal:
        return build_result("refused", "InvalidSpec", refusal.message, topic.topic_id)
    return None
