"""Deleting and growing topics that exist.

A deletion outlives absent brokers: the topic's header turns `deleting` and names the brokers that
may still hold data; the record goes when the last of them has confirmed. The name is free at once.
"""

from dataclasses import replace

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import (
    ConfirmDeletions,
    CreatePartitions,
    Decision,
    DeleteTopics,
)
from fairlead_controller.decisions.placement import (
    RandomSource,
    check_assignments,
    place_partitions,
)
from fairlead_controller.decisions.security.mutation_quota import MutationAllowance, throttling
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_controller.decisions.topic_lookup import find_topic, refuse_declared
from fairlead_controller.decisions.topics.creation import (
    PARTITIONS_PER_CALL_MAX,
    TOPICS_PER_CALL_MAX,
    new_partition,
)
from fairlead_model.cluster import (
    PartitionChanged,
    TopicChanged,
    TopicImage,
    TopicRemoved,
    TopicState,
)
from fairlead_model.ids import ZERO_TOPIC_ID, BrokerId, TopicId, is_internal_topic, topic_id_text
from fairlead_model.resources.topic_manifest import PARTITIONS_MAX
from fairlead_model.session.calls import DeletableTopic, DeletedTopic, GrowableTopic, GrownTopic
from fairlead_model.session.refusals import RefusalCode, RefusedError


def decide_topic_deletion(
    state: ControllerState, event: DeleteTopics, allowance: MutationAllowance | None = None
) -> Decision:
    """Delete topics; each is decided by itself."""
    if len(event.call["topics"]) > TOPICS_PER_CALL_MAX:
        return Decision(
            reply=RefusedError(
                RefusalCode.INVALID_REQUEST,
                f"{len(event.call['topics'])} topics in one request, at most "
                f"{TOPICS_PER_CALL_MAX} fit",
            )
        )
    draft = Draft(state)
    results: list[DeletedTopic] = []
    for wanted in event.call["topics"]:
        try:
            topic = _find_deletable(draft.state, wanted)
            if allowance is not None:
                allowance.charge(len(topic.partitions))
        except RefusedError as refusal:
            results.append(
                DeletedTopic(
                    name=wanted["name"],
                    topic_id=wanted["topic_id"] or ZERO_TOPIC_ID,
                    error_code=int(refusal.code),
                    error_message=refusal.message,
                )
            )
            continue
        delete_topic(draft, topic)
        results.append(
            DeletedTopic(name=topic.name, topic_id=topic.topic_id, error_code=0, error_message=None)
        )
    return draft.decision({"topics": results, **throttling(allowance)})


def _find_deletable(state: ControllerState, wanted: DeletableTopic) -> TopicImage:
    name = wanted["name"]
    if name is not None:
        topic = find_topic(state, name)
    else:
        by_id = state.image.topic_by_id(wanted["topic_id"])
        if by_id is None:
            raise RefusedError(
                RefusalCode.UNKNOWN_TOPIC_ID,
                f"there is no topic with id {topic_id_text(wanted['topic_id'])}",
            )
        topic = by_id
    refuse_declared(topic)
    return topic


def delete_topic(draft: Draft, topic: TopicImage) -> None:
    """Begin the deletion of a topic in a draft."""
    holders = frozenset(
        broker_id
        for partition in topic.partitions
        for broker_id in (*partition.replicas, *partition.unconfirmed_removals)
    )
    header = replace(
        topic.header, state=TopicState.DELETING, resource="", unconfirmed_deletions=holders
    )
    draft.add(TopicChanged(header))
    draft.explain(f"topic {topic.name} is deleted; {len(holders)} brokers have to confirm")


def decide_confirmation(state: ControllerState, event: ConfirmDeletions) -> Decision:
    """Note that a broker holds nothing of some deleted topics or removed replicas any more."""
    draft = Draft(state)
    for topic_id in event.topic_ids:
        header = draft.state.image.deleting.get(topic_id)
        if header is None or event.broker_id not in header.unconfirmed_deletions:
            continue
        waiting = header.unconfirmed_deletions - {event.broker_id}
        if waiting:
            draft.add(TopicChanged(replace(header, unconfirmed_deletions=waiting)))
        else:
            draft.add(TopicRemoved(TopicId(topic_id)))
            draft.explain(f"topic {header.name} is gone from all brokers")
    changes: dict[tuple[bytes, int], PartitionChanged] = {}
    for removal in event.removals:
        topic = draft.state.image.topic_by_id(removal["topic_id"])
        if topic is None or removal["index"] >= len(topic.partitions):
            continue
        partition = topic.partitions[removal["index"]]
        waiting_for = partition.unconfirmed_removals
        # An older epoch: it may have been added and removed once more since it said so.
        if event.broker_id in waiting_for and removal["leader_epoch"] == partition.leader_epoch:
            left = tuple([each for each in waiting_for if each != event.broker_id])
            record = partition.changed(unconfirmed_removals=left)
            change = PartitionChanged(topic.topic_id, removal["index"], record)
            changes[topic.topic_id, removal["index"]] = change
    draft.add(*changes.values())
    return draft.decision({})


def decide_growth(
    state: ControllerState,
    event: CreatePartitions,
    random: RandomSource,
    room: TableRoom | None = None,
    allowance: MutationAllowance | None = None,
) -> Decision:
    """Add partitions to topics; each is decided by itself."""
    draft = Draft(state, room)
    results: list[GrownTopic] = []
    left = PARTITIONS_PER_CALL_MAX
    for wanted in event.call["topics"]:
        try:
            topic = find_topic(draft.state, wanted["name"])
            refuse_declared(topic)
            if is_internal_topic(topic.name):
                raise RefusedError(
                    RefusalCode.INVALID_TOPIC_EXCEPTION,
                    f"topic {topic.name!r} cannot grow: the number of its partitions says which "
                    "of them a group is in",
                )
            assignments = _planned_growth(draft.state, topic, wanted, random, left)
            if allowance is not None:
                allowance.charge(len(assignments))
            grow_topic(draft, topic, assignments)
        except RefusedError as refusal:
            results.append(
                GrownTopic(
                    name=wanted["name"],
                    error_code=int(refusal.code),
                    error_message=refusal.message,
                )
            )
            continue
        left -= len(assignments)
        results.append(GrownTopic(name=topic.name, error_code=0, error_message=None))
    reply = {"topics": results, **throttling(allowance)}
    return Decision(reply=reply) if event.call["validate_only"] else draft.decision(reply)


def _planned_growth(
    state: ControllerState,
    topic: TopicImage,
    wanted: GrowableTopic,
    random: RandomSource,
    partitions_left: int,
) -> list[tuple[BrokerId, ...]]:
    present, count = len(topic.partitions), wanted["count"]
    if count <= present:
        # In Kafka's words, which its own tests of its admin client compare.
        problem = (
            f"Topic already has {present} partition(s)."
            if count == present
            else f"The topic {topic.name} currently has {present} partition(s); "
            f"{count} would not be an increase."
        )
        raise RefusedError(RefusalCode.INVALID_PARTITIONS, problem)
    if count > PARTITIONS_MAX:
        raise RefusedError(
            RefusalCode.INVALID_PARTITIONS, f"a topic may have {PARTITIONS_MAX} partitions"
        )
    if count - present > partitions_left:
        raise RefusedError(
            RefusalCode.POLICY_VIOLATION,
            f"one request may create {PARTITIONS_PER_CALL_MAX} partitions; ask again for the rest",
        )
    state.check_room(new_partitions=count - present)
    if wanted["assignments"] is None:
        return plan_growth(state, topic, count, random, topic.replication_factor)
    if len(wanted["assignments"]) != count - present:
        raise RefusedError(
            RefusalCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(wanted['assignments'])} assignments for {count - present} new partitions",
        )
    return check_assignments(
        dict(enumerate(wanted["assignments"], start=present)),
        state.image.brokers,
        first_index=present,
        cordoned=state.closed,
        replication_factor=topic.replication_factor,
    )


def plan_growth(
    state: ControllerState,
    topic: TopicImage,
    count: int,
    random: RandomSource,
    replication_factor: int,
) -> list[tuple[BrokerId, ...]]:
    """Place the partitions that a topic lacks to have `count`."""
    state.check_room(new_partitions=count - len(topic.partitions))
    return place_partitions(
        list(state.image.brokers.values()),
        state.loads,
        partition_count=count - len(topic.partitions),
        replication_factor=replication_factor,
        existing=[partition.replicas for partition in topic.partitions],
        cordoned=state.closed,
        random=random,
    )


def grow_topic(draft: Draft, topic: TopicImage, assignments: list[tuple[BrokerId, ...]]) -> None:
    """Add partitions to a topic in a draft; raise RefusedError if they do not fit the tables."""
    present = len(topic.partitions)
    header = replace(topic.header, partition_count=present + len(assignments))
    draft.add(
        TopicChanged(header),
        *(
            PartitionChanged(
                topic.topic_id,
                present + number,
                new_partition(draft.state, replicas, topic.configs),
            )
            for number, replicas in enumerate(assignments)
        ),
    )
    draft.explain(f"topic {topic.name} grows from {present} to {header.partition_count} partitions")
