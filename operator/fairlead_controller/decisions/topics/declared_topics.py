"""Topics that Topic resources declare: made, grown and configured to match; released when not.

A resource is the one source of its topic's configs: what it does not name goes back to the
default, and what it names as null stays as it is. A topic that exists already is adopted as it is,
with its id and its data; from then on it counts as the resource's, not as made over Kafka.
"""

from dataclasses import replace
from typing import Final

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import Decision, DeclareTopics
from fairlead_controller.decisions.placement import RandomSource
from fairlead_controller.decisions.reassignment.resizing import (
    Resizer,
    needs_resizing,
    require_resized,
)
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_controller.decisions.topics.creation import (
    TopicPlan,
    add_topic,
    check_new_name,
    check_replication_factor,
    plan_topic,
)
from fairlead_controller.decisions.topics.deletion_and_growth import grow_topic, plan_growth
from fairlead_controller.decisions.topics.topic_configs import set_topic_configs
from fairlead_model.cluster import TopicChanged, TopicImage, TopicOrigin
from fairlead_model.configs.config_values import ConfigError
from fairlead_model.resources.topic_manifest import UNSPECIFIED, TopicSpec
from fairlead_model.session.calls import CreatableTopic, CreateTopicsCall
from fairlead_model.session.refusals import RefusalCode, RefusedError

PASSING: Final = frozenset(
    {RefusalCode.INVALID_REPLICATION_FACTOR, RefusalCode.REASSIGNMENT_IN_PROGRESS}
)
"""Codes for what a resource has to wait for, and is asked again after."""


def declaration_problems(state: ControllerState, event: DeclareTopics) -> list[str]:
    """List the resources that no set of brokers could satisfy; each text names the field."""
    problems = []
    for spec in event.specs:
        topic = state.image.topic(spec.topic_name)
        try:
            if topic is None:
                factor = spec.replication_factor
                default = event.default_replication_factor
                check_new_name(state, spec.topic_name, is_internal=False)
                check_replication_factor(default if factor == UNSPECIFIED else factor)
            else:
                check_existing(topic, spec)
        except RefusedError as refusal:
            problems.append(f"Topic {spec.resource}: {refusal.message}")
    return problems


def check_existing(topic: TopicImage, spec: TopicSpec) -> None:
    """Raise RefusedError, which names the field, if a topic cannot match its resource."""
    present = len(topic.partitions)
    if spec.partitions != UNSPECIFIED and spec.partitions < present:
        raise RefusedError(
            RefusalCode.INVALID_PARTITIONS,
            f"spec.partitions: {spec.partitions} is less than the {present} partitions that "
            f"topic {topic.name!r} has; partitions can be added, never removed",
        )


def decide_declarations(
    state: ControllerState,
    event: DeclareTopics,
    random: RandomSource,
    room: TableRoom | None = None,
) -> Decision:
    """Bring topics in line with their resources as far as brokers allow.

    The reply names the topics that still wait for brokers (`waiting`) and the resources that
    cannot be met (`problems`); asked again with nothing new, it changes nothing.
    """
    draft = Draft(state, room)
    resizer = Resizer(draft)
    _release(draft, {spec.topic_name for spec in event.specs})
    waiting: list[str] = []
    problems: list[str] = []
    for spec in event.specs:
        topic = draft.state.image.topic(spec.topic_name)
        try:
            if topic is not None:
                is_short = adopt_topic(draft, topic, spec)
                if event.may_create:
                    grow_declared_topic(draft, spec, random)
                    resize_declared_topic(draft, spec, resizer)
                elif is_short:
                    waiting.append(spec.topic_name)
            elif event.may_create:
                create_declared_topic(
                    draft,
                    spec,
                    random,
                    default_partitions=event.default_partitions,
                    default_replication_factor=event.default_replication_factor,
                )
            else:
                waiting.append(spec.topic_name)
        except ConfigError as error:
            # Configs that the resource leaves alone contradict those that it sets.
            problems.append(f"Topic {spec.resource}: spec.config: {error.message}")
        except RefusedError as refusal:
            problems.append(f"Topic {spec.resource}: {refusal.message}")
            if refusal.code in PASSING:
                waiting.append(spec.topic_name)
    return draft.decision({"waiting": waiting, "problems": problems})


def _release(draft: Draft, declared: set[str]) -> None:
    """Release topics whose resource is gone; they stay, and may be altered over Kafka again."""
    orphans = [
        topic
        for topic in draft.state.image.topics()
        if topic.header.resource and topic.name not in declared
    ]
    for topic in sorted(orphans, key=lambda topic: topic.name):
        release_topic(draft, topic)


def release_topic(draft: Draft, topic: TopicImage) -> None:
    """Mark a topic as declared by no resource; it stays as it is."""
    draft.add(TopicChanged(replace(topic.header, resource="", deletion_protection=False)))
    draft.explain(f"topic {topic.name} is no longer declared by Topic {topic.header.resource}")


def create_declared_topic(
    draft: Draft,
    spec: TopicSpec,
    random: RandomSource,
    *,
    default_partitions: int,
    default_replication_factor: int,
) -> None:
    """Create the topic of a resource; raise RefusedError if name or brokers do not allow it."""
    call = CreateTopicsCall(
        topics=[],
        validate_only=False,
        default_partitions=default_partitions,
        default_replication_factor=default_replication_factor,
    )
    wanted = CreatableTopic(
        name=spec.topic_name,
        partitions=spec.partitions,
        replication_factor=spec.replication_factor,
        assignments={},
        configs=dict(spec.configs),
    )
    plan = plan_topic(draft.state, wanted, call, random)
    header = replace(
        plan.header,
        origin=TopicOrigin.RESOURCE,
        resource=spec.resource,
        reclaim_policy=spec.reclaim_policy,
        deletion_protection=spec.deletion_protection,
    )
    add_topic(draft, TopicPlan(header, plan.assignments))


def adopt_topic(draft: Draft, topic: TopicImage, spec: TopicSpec) -> bool:
    """Mark an existing topic as declared by a resource, and return it the resource's configs.

    Return True if it has fewer partitions than the resource wants, or another number of replicas.
    """
    check_existing(topic, spec)
    header = replace(
        topic.header,
        origin=TopicOrigin.RESOURCE,
        resource=spec.resource,
        reclaim_policy=spec.reclaim_policy,
        deletion_protection=spec.deletion_protection,
    )
    if header != topic.header:
        draft.add(TopicChanged(header))
        draft.explain(f"topic {topic.name} is declared by Topic {spec.resource}")
    kept = {name: value for name, value in topic.configs.items() if name in spec.left_alone}
    set_topic_configs(draft, _current(draft, topic), {**spec.configs, **kept})
    factor = spec.replication_factor
    return spec.partitions > len(topic.partitions) or (
        factor != UNSPECIFIED and needs_resizing(topic, factor)
    )


def grow_declared_topic(draft: Draft, spec: TopicSpec, random: RandomSource) -> None:
    """Add the partitions that a declared topic lacks; raise RefusedError if brokers are too few."""
    topic = draft.state.image.topic(spec.topic_name)
    if topic is not None and spec.partitions > len(topic.partitions):
        factor = spec.replication_factor
        if factor == UNSPECIFIED:
            factor = topic.replication_factor
        plan = plan_growth(draft.state, topic, spec.partitions, random, factor)
        grow_topic(draft, topic, plan)


def resize_declared_topic(draft: Draft, spec: TopicSpec, resizer: Resizer) -> None:
    """Give a topic's partitions as many replicas as its resource says.

    RefusedError, whose code is one of `PASSING`, if some partitions have to wait for that.
    """
    topic, factor = draft.state.image.topic(spec.topic_name), spec.replication_factor
    if topic is not None and factor != UNSPECIFIED and needs_resizing(topic, factor):
        require_resized(topic, factor, resizer.resize(topic, factor))


def _current(draft: Draft, topic: TopicImage) -> TopicImage:
    return draft.state.image.topics_by_id[topic.topic_id]
