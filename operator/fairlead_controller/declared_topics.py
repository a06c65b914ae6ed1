"""Topics that Topic resources declare: made, grown and configured to match; released when not.

A resource is the one source of its topic's configs: what it does not name goes back to the
default, and what it names as null stays as it is. A topic that exists already is adopted as it is,
with its id and its data; from then on it counts as the resource's, not as made over Kafka.
"""

from dataclasses import replace

from fairlead_controller.config_changes import set_topic_configs
from fairlead_controller.draft import Draft
from fairlead_controller.events import Decision, DeclareTopics
from fairlead_controller.placement import RandomSource
from fairlead_controller.state import ControllerState
from fairlead_controller.topic_changes import grow_topic, plan_growth
from fairlead_controller.topic_creation import (
    TopicPlan,
    add_topic,
    check_new_name,
    check_replication_factor,
    plan_topic,
)
from fairlead_model.calls import CreatableTopic, CreateTopicsCall
from fairlead_model.cluster import TopicChanged, TopicImage, TopicOrigin
from fairlead_model.refusals import RefusalCode, RefusedError
from fairlead_model.resources import UNSPECIFIED, TopicSpec


def declaration_problems(state: ControllerState, event: DeclareTopics) -> list[str]:
    """List the resources that cannot be met whatever brokers come; each says its field."""
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
    """Check that a topic can become what its resource says; RefusedError names the field."""
    present = len(topic.partitions)
    if spec.partitions != UNSPECIFIED and spec.partitions < present:
        raise RefusedError(
            RefusalCode.INVALID_PARTITIONS,
            f"spec.partitions: {spec.partitions} is less than the {present} partitions that "
            f"topic {topic.name!r} has; partitions can be added, never removed",
        )
    factor = spec.replication_factor
    if factor not in {UNSPECIFIED, topic.replication_factor}:
        raise RefusedError(
            RefusalCode.INVALID_REPLICATION_FACTOR,
            f"spec.replicationFactor: topic {topic.name!r} has {topic.replication_factor}, "
            f"not {factor}; the number of replicas of a topic cannot be changed yet",
        )


def decide_declarations(
    state: ControllerState, event: DeclareTopics, random: RandomSource
) -> Decision:
    """Bring topics in line with their resources as far as brokers allow.

    The reply names the topics that still wait for brokers (`waiting`) and the resources that
    cannot be met (`problems`); asked again with nothing new, it changes nothing.
    """
    draft = Draft(state)
    _release(draft, {spec.topic_name for spec in event.specs})
    waiting: list[str] = []
    problems: list[str] = []
    for spec in event.specs:
        topic = draft.state.image.topic(spec.topic_name)
        try:
            if topic is not None:
                is_short = adopt_topic(draft, topic, spec)
                if is_short and event.may_create:
                    grow_declared_topic(draft, spec, random)
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
        except RefusedError as refusal:
            problems.append(f"Topic {spec.resource}: {refusal.message}")
            if refusal.code is RefusalCode.INVALID_REPLICATION_FACTOR:
                waiting.append(spec.topic_name)
    return draft.decision({"waiting": waiting, "problems": problems})


def _release(draft: Draft, declared: set[str]) -> None:
    """Let go of topics whose resource is gone; they stay, and may be altered over Kafka again."""
    orphans = [
        topic
        for topic in draft.state.image.topics()
        if topic.header.resource and topic.name not in declared
    ]
    for topic in sorted(orphans, key=lambda topic: topic.name):
        release_topic(draft, topic)


def release_topic(draft: Draft, topic: TopicImage) -> None:
    """Let a topic be declared by nobody; it stays as it is."""
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
    """Make the topic of a resource; RefusedError if the name or the brokers don't allow it."""
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
    """Give an existing topic to a resource, with the resource's configs.

    True if it has fewer partitions than the resource wants.
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
    return spec.partitions > len(topic.partitions)


def grow_declared_topic(draft: Draft, spec: TopicSpec, random: RandomSource) -> None:
    """Add the partitions that the topic of a resource lacks; RefusedError if brokers are few."""
    topic = draft.state.image.topic(spec.topic_name)
    if topic is not None:
        grow_topic(draft, topic, plan_growth(draft.state, topic, spec.partitions, random))


def _current(draft: Draft, topic: TopicImage) -> TopicImage:
    return draft.state.image.topics_by_id[topic.topic_id]
