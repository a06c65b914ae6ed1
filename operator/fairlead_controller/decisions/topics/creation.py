"""Handle CreateTopics: each topic of a request is accepted or refused by itself.

The checks are in the order in which a user gets their errors: the name, whether the topic exists,
whether the name collides, the configs, the counts, the placement.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import CreateTopics, Decision
from fairlead_controller.decisions.leader_election import with_elected_leader
from fairlead_controller.decisions.minimum_in_sync import effective_min_insync_replicas
from fairlead_controller.decisions.placement import (
    RandomSource,
    check_assignments,
    place_partitions,
)
from fairlead_controller.decisions.security.mutation_quota import MutationAllowance, throttling
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.cluster import ClusterImage, PartitionChanged, TopicChanged
from fairlead_model.configs.config_values import ConfigError, validate_topic_configs
from fairlead_model.ids import (
    ZERO_TOPIC_ID,
    BrokerId,
    TopicId,
    is_assignable_topic_id,
    is_internal_topic,
    topic_name_problem,
)
from fairlead_model.partition import PartitionRegistration
from fairlead_model.resources.topic_manifest import PARTITIONS_MAX
from fairlead_model.session.calls import CreatableTopic, CreatedTopic, CreateTopicsCall
from fairlead_model.session.refusals import RefusalCode, RefusedError
from fairlead_model.topic import TopicHeader, TopicOrigin

TOPICS_PER_CALL_MAX: Final = 10_000
PARTITIONS_PER_CALL_MAX: Final = 10_000
"""Bound on what one request may create, so that no request stalls the controller."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that may be created: all checks have passed."""

    header: TopicHeader
    assignments: tuple[tuple[BrokerId, ...], ...]


def decide_topic_creation(
    state: ControllerState,
    event: CreateTopics,
    random: RandomSource,
    room: TableRoom | None = None,
    allowance: MutationAllowance | None = None,
) -> Decision:
    """Create topics; with `validate_only` only say what would happen."""
    call = event.call
    if len(call["topics"]) > TOPICS_PER_CALL_MAX:
        return Decision(
            reply=RefusedError(
                RefusalCode.INVALID_REQUEST,
                f"{len(call['topics'])} topics in one request, at most {TOPICS_PER_CALL_MAX} fit",
            )
        )
    draft = Draft(state, room)
    asked = Counter(topic["name"] for topic in call["topics"])
    results: list[CreatedTopic] = []
    partitions_left = PARTITIONS_PER_CALL_MAX
    for topic in call["topics"]:
        try:
            if asked[topic["name"]] > 1:
                raise RefusedError(
                    RefusalCode.INVALID_REQUEST, f"topic {topic['name']!r} is named twice"
                )
            plan = plan_topic(draft.state, topic, call, random, partitions_left)
            if allowance is not None:
                allowance.charge(len(plan.assignments))
            add_topic(draft, plan)
        except RefusedError as refusal:
            results.append(_refused(topic["name"], refusal))
            continue
        partitions_left -= len(plan.assignments)
        results.append(_created(plan, validate_only=call["validate_only"]))
    reply = {"topics": results, **throttling(allowance)}
    return Decision(reply=reply) if call["validate_only"] else draft.decision(reply)


def plan_topic(
    state: ControllerState,
    topic: CreatableTopic,
    call: CreateTopicsCall,
    random: RandomSource,
    partitions_max: int = PARTITIONS_PER_CALL_MAX,
) -> TopicPlan:
    """Check one topic and place its partitions; raise RefusedError if something is wrong."""
    name = topic["name"]
    is_internal = bool(call.get("internal", False)) and is_internal_topic(name)
    check_new_name(state, name, is_internal=is_internal)
    configs = _checked_configs(topic["configs"])
    if not is_internal:
        state.check_room(new_topics=1)
    assignments = _assignments(state, topic, call, random, partitions_max)
    if not is_internal:
        state.check_room(new_partitions=len(assignments))
    return TopicPlan(
        header=TopicHeader(
            name=name,
            topic_id=make_topic_id(state.image, random),
            partition_count=len(assignments),
            configs=configs,
            origin=TopicOrigin.INTERNAL if is_internal else TopicOrigin.KAFKA,
        ),
        assignments=assignments,
    )


def check_new_name(state: ControllerState, name: str, *, is_internal: bool) -> None:
    """Raise RefusedError if no topic of this name may be created."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise RefusedError(RefusalCode.INVALID_TOPIC_EXCEPTION, problem)
    existing = state.image.topic(name)
    if existing is not None:
        by = f", declared by Topic {existing.header.resource}" if existing.header.resource else ""
        raise RefusedError(RefusalCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists{by}.")
    if is_internal_topic(name) and not is_internal:
        raise RefusedError(
            RefusalCode.INVALID_TOPIC_EXCEPTION, f"{name!r} belongs to the cluster itself"
        )
    other = state.colliding_name(name)
    if other is not None:
        raise RefusedError(
            RefusalCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} collides with {other!r}: '.' and '_' are the same in metric names",
        )


def _checked_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    nulls = sorted(name for name, value in configs.items() if value is None)
    if nulls:
        raise RefusedError(
            RefusalCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    checked = {name: value for name, value in configs.items() if value is not None}
    try:
        validate_topic_configs(checked)
    except ConfigError as error:
        raise RefusedError(RefusalCode.INVALID_CONFIG, error.message) from error
    return checked


def _assignments(
    state: ControllerState,
    topic: CreatableTopic,
    call: CreateTopicsCall,
    random: RandomSource,
    partitions_max: int,
) -> tuple[tuple[BrokerId, ...], ...]:
    partitions, factor = topic["partitions"], topic["replication_factor"]
    if topic["assignments"]:
        if partitions != -1 or factor != -1:
            raise RefusedError(
                RefusalCode.INVALID_REQUEST,
                "with assignments given, partitions and replication factor have to be -1",
            )
        assigned = check_assignments(
            topic["assignments"], state.image.brokers, cordoned=state.closed
        )
        check_replication_factor(len(assigned[0]))
        _check_partitions(len(assigned), partitions_max)
        return tuple(assigned)
    count = call["default_partitions"] if partitions == -1 else partitions
    replicas = call["default_replication_factor"] if factor == -1 else factor
    check_replication_factor(replicas)
    _check_partitions(count, partitions_max)
    placed = place_partitions(
        list(state.image.brokers.values()),
        state.loads,
        partition_count=count,
        replication_factor=replicas,
        cordoned=state.closed,
        random=random,
    )
    return tuple(placed)


def _check_partitions(count: int, partitions_max: int) -> None:
    if count < 1:
        raise RefusedError(
            RefusalCode.INVALID_PARTITIONS, f"{count} partitions: at least one is needed"
        )
    if count > PARTITIONS_MAX:
        raise RefusedError(
            RefusalCode.INVALID_PARTITIONS,
            f"{count} partitions are more than the {PARTITIONS_MAX} that a topic may have",
        )
    if count > partitions_max:
        raise RefusedError(
            RefusalCode.POLICY_VIOLATION,
            f"one request may create {PARTITIONS_PER_CALL_MAX} partitions; ask again for the rest",
        )


def check_replication_factor(factor: int) -> None:
    """Check the number of replicas by itself; placement checks whether brokers suffice."""
    if factor < 1:
        raise RefusedError(
            RefusalCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}: at least one replica is needed",
        )


def make_topic_id(image: ClusterImage, random: RandomSource) -> TopicId:
    """Draw an id that no topic has or had."""
    while True:
        candidate = random.randbytes(16)
        if is_assignable_topic_id(candidate) and candidate not in image.topics_by_id:
            return TopicId(candidate)


def new_partition(
    state: ControllerState, replicas: tuple[BrokerId, ...], configs: Mapping[str, str]
) -> PartitionRegistration:
    """Return the first record of a partition, with its leader elected."""
    brokers = state.image.brokers
    alive = tuple(broker for broker in replicas if brokers[broker].may_lead)
    partition = PartitionRegistration(
        replicas=replicas,
        isr=alive or replicas[:1],
        directories=tuple(brokers[broker].directory_id for broker in replicas),
        min_insync_replicas=effective_min_insync_replicas(state.image, configs),
    )
    elected = with_elected_leader(partition, state.is_preferable)
    if not elected.has_leader:
        elected = with_elected_leader(partition, state.is_electable)
    # The first record is version 0, whoever leads it.
    return replace(elected, leader_epoch=0, partition_epoch=0)


def add_topic(draft: Draft, plan: TopicPlan) -> None:
    """Add a planned topic to a draft; raise RefusedError if it does not fit the tables."""
    header = plan.header
    draft.add(
        TopicChanged(header),
        *(
            PartitionChanged(
                header.topic_id, index, new_partition(draft.state, replicas, header.configs)
            )
            for index, replicas in enumerate(plan.assignments)
        ),
    )
    draft.explain(f"topic {header.name} is created with {header.partition_count} partitions")


def _created(plan: TopicPlan, *, validate_only: bool) -> CreatedTopic:
    return CreatedTopic(
        name=plan.header.name,
        topic_id=ZERO_TOPIC_ID if validate_only else plan.header.topic_id,
        error_code=0,
        error_message=None,
        partitions=len(plan.assignments),
        replication_factor=len(plan.assignments[0]),
        configs=dict(plan.header.configs),
    )


def _refused(name: str, refusal: RefusedError) -> CreatedTopic:
    return CreatedTopic(
        name=name,
        topic_id=ZERO_TOPIC_ID,
        error_code=int(refusal.code),
        error_message=refusal.message,
        partitions=-1,
        replication_factor=-1,
        configs={},
    )
