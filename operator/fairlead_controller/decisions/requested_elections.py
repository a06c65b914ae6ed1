"""Requested elections: by users, by the timer for preferred leaders, by reports of brokers."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fairlead_controller.decisions.draft import LEFT_OUT, Draft
from fairlead_controller.decisions.events import (
    BalanceLeaders,
    Decision,
    ElectOnRequest,
    PartitionMove,
    ReportLogs,
    ReportOffline,
)
from fairlead_controller.decisions.full_disks import decide_room_report
from fairlead_controller.decisions.isr_changes import check_broker_epoch
from fairlead_controller.decisions.leader_election import LogFacts
from fairlead_controller.decisions.leadership import (
    ELECTED_PER_DECISION_MAX,
    elect_in,
    elect_leaderless,
    is_anybody_awaited,
    moved,
    prefer_leader,
    preference_problem,
    remove_from_partitions,
)
from fairlead_controller.decisions.membership import present_members
from fairlead_controller.decisions.observations import LogsReported, ReplicasOffline, ReportedLog
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.cluster import TopicImage
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.calls import (
    ElectablePartition,
    ElectedPartition,
    ElectionType,
    ElectLeadersCall,
)
from fairlead_model.session.refusals import RefusalCode, RefusedError

BY_HAND = "an election was asked for"


def decide_requested_elections(state: ControllerState, event: ElectOnRequest) -> Decision:
    """Elect leaders as a user asks; each partition is decided by itself."""
    kind = event.call["election_type"]
    if kind not in {ElectionType.PREFERRED, ElectionType.UNCLEAN}:
        return Decision(
            reply=RefusedError(RefusalCode.INVALID_REQUEST, f"unknown election type {kind}")
        )
    draft = Draft(state)
    moves: list[PartitionMove] = []
    results: list[ElectedPartition] = []
    wanted = event.call["partitions"]
    named: set[tuple[str, int]] = set()
    for asked in _all_in_need(state, ElectionType(kind)) if wanted is None else wanted:
        code, message = RefusalCode.NONE, None
        try:
            if (asked["topic"], asked["index"]) in named:
                raise RefusedError(RefusalCode.INVALID_REQUEST, "the partition is named twice")
            named.add((asked["topic"], asked["index"]))
            moves.append(_elect_by_hand(state, asked, ElectionType(kind)))
        except RefusedError as refusal:
            code, message = refusal.code, refusal.message
        results.append(
            ElectedPartition(
                topic=asked["topic"],
                index=asked["index"],
                error_code=int(code),
                error_message=message,
            )
        )
    draft.move(moves)
    left_out = {
        (move.topic, move.index) for move in moves if (move.topic_id, move.index) in draft.left_out
    }
    for result in results:
        if result["error_code"] == 0 and (result["topic"], result["index"]) in left_out:
            result["error_code"] = int(RefusalCode.UNKNOWN_SERVER_ERROR)
            result["error_message"] = LEFT_OUT
    return draft.decision({"partitions": results})


def election_parts(state: ControllerState, event: ElectOnRequest) -> list[ElectOnRequest]:
    """Return the parts in which elections of all partitions are decided, one or more.

    Elections of named partitions are one part: a client names no more than it is let.
    """
    call = event.call
    kind = call["election_type"]
    if call["partitions"] is not None or kind not in set(ElectionType):
        return [event]
    wanted = list(_all_in_need(state, ElectionType(kind)))
    size = ELECTED_PER_DECISION_MAX
    starts = range(0, max(len(wanted), 1), size)
    return [
        ElectOnRequest(ElectLeadersCall(partitions=wanted[i : i + size], election_type=kind))
        for i in starts
    ]


def _all_in_need(state: ControllerState, kind: ElectionType) -> Iterator[ElectablePartition]:
    """Find the partitions that an election for all partitions concerns; mostly none or few."""
    for topic in sorted(state.image.topics(), key=lambda topic: topic.name):
        for index, partition in enumerate(topic.partitions):
            if not _is_needless(partition, kind):
                yield ElectablePartition(topic=topic.name, index=index)


def _is_needless(partition: PartitionRegistration, kind: ElectionType) -> bool:
    if kind is ElectionType.UNCLEAN:
        return partition.has_leader
    return partition.leader == partition.preferred_leader


def _elect_by_hand(
    state: ControllerState, asked: ElectablePartition, kind: ElectionType
) -> PartitionMove:
    topic = state.image.topic(asked["topic"])
    if topic is None:
        raise RefusedError(
            RefusalCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {asked['topic']}"
        )
    index = asked["index"]
    if not 0 <= index < len(topic.partitions):
        raise RefusedError(
            RefusalCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic.name}-{index}"
        )
    is_needless = _is_needless(topic.partitions[index], kind)
    if kind is ElectionType.UNCLEAN:
        if is_needless:
            raise RefusedError(
                RefusalCode.ELECTION_NOT_NEEDED,
                f"{topic.name}-{index} has the leader {topic.partitions[index].leader}",
            )
        outcome = elect_in(state, topic, index, allows_unclean=True)
        moves = moved(topic, index, outcome, BY_HAND)
        if not moves:
            raise RefusedError(
                RefusalCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, _why_nobody(state, topic, index)
            )
        return moves[0]
    preferred = topic.partitions[index].preferred_leader
    if is_needless:
        raise RefusedError(
            RefusalCode.ELECTION_NOT_NEEDED,
            f"the preferred leader {preferred} leads {topic.name}-{index}",
        )
    preference = prefer_leader(state, topic, index)
    if preference is None:
        raise RefusedError(
            RefusalCode.PREFERRED_LEADER_NOT_AVAILABLE, preference_problem(state, topic, index)
        )
    return moved(topic, index, preference, BY_HAND)[0]


def _why_nobody(state: ControllerState, topic: TopicImage, index: int) -> str:
    """Say why no replica of a partition can lead, whatever it lacks."""
    partition, name = topic.partitions[index], f"{topic.name}-{index}"
    if is_anybody_awaited(state, present_members(partition)):
        return (
            f"{name} waits for a replica that holds every acknowledged record, and whose broker "
            "may only not have found this controller yet: ask again in a few seconds"
        )
    if any(map(state.is_electable, partition.replicas)):
        return f"no broker in service can use its replica of {name}"
    return f"no replica of {name} is in service"


def decide_balancing(state: ControllerState, event: BalanceLeaders) -> Decision:
    """Elect preferred leaders for brokers that lead too few of the partitions that prefer them.

    The cost depends on the partitions that are out of place, not on the size of the cluster. Of
    very many leaders some move, and the others are left.
    """
    lost = Counter(topic.partitions[index].preferred_leader for topic, index in _misplaced(state))
    draft = Draft(state)
    moves: list[PartitionMove] = []
    short = {*event.owed}
    for broker_id, count in lost.items():
        load = state.loads.get(broker_id)
        owed = load.preferred_leaders if load else 0
        if count * 100 > owed * event.imbalance_percentage_max:
            short.add(broker_id)
    for topic, index in _misplaced(state):
        if topic.partitions[index].preferred_leader not in short:
            continue
        if len(moves) >= ELECTED_PER_DECISION_MAX:
            draft.leave(replace(event, owed=frozenset(short)))
            break
        preference = prefer_leader(state, topic, index)
        if preference is not None:
            moves += moved(topic, index, preference, "time to balance leaders")
    count = draft.move(moves)
    if count:
        draft.explain(f"{count} partitions go back to their preferred leaders")
    return draft.decision({"moved": count})


def _misplaced(state: ControllerState) -> Iterator[tuple[TopicImage, int]]:
    for topic_id, index in sorted(state.observations.misplaced):
        topic = state.image.topic_by_id(topic_id)
        if topic is not None:
            yield topic, index


def decide_offline_report(state: ControllerState, event: ReportOffline) -> Decision:
    """Remove replicas that a broker cannot use from leadership and ISR."""
    call = event.call
    try:
        check_broker_epoch(state, event.broker_id, call["broker_epoch"])
    except RefusedError as refusal:
        return Decision(reply=refusal)
    if call.get("lacks_room"):
        return decide_room_report(state, event)
    draft = Draft(state)
    keys = sorted({(item["topic_id"], item["index"]) for item in call["partitions"]})
    known = [found for key in keys if (found := _find(state, *key)) is not None]
    held = [
        (topic, index)
        for topic, index in known
        if event.broker_id in topic.partitions[index].replicas
    ]
    if not held:
        return draft.decision({})
    offline = frozenset((topic.topic_id, index) for topic, index in held)
    draft.add(ReplicasOffline(event.broker_id, call["broker_epoch"], offline))
    changed = remove_from_partitions(
        draft,
        event.broker_id,
        f"broker {event.broker_id} cannot use its replica",
        is_unclean=lambda topic, index: call["is_unclean"],
        partitions=held,
        all_or_none=True,
    )
    lost = ", which may have lost records" if call["is_unclean"] else ""
    draft.explain(
        f"broker {event.broker_id} cannot use {len(held)} replicas{lost}; "
        f"{changed} partitions change leader"
    )
    return draft.decision({})


def decide_log_report(state: ControllerState, event: ReportLogs) -> Decision:
    """Note how far logs go; elect where all replicas that count have reported."""
    call = event.call
    try:
        check_broker_epoch(state, event.broker_id, call["broker_epoch"])
    except RefusedError as refusal:
        return Decision(reply=refusal)
    logs: dict[tuple[bytes, int], ReportedLog] = {}
    partitions: list[tuple[TopicImage, int]] = []
    for item in call["partitions"]:
        found = _find(state, item["topic_id"], item["index"])
        if found is None or (found[0].topic_id, found[1]) in logs:
            continue
        topic, index = found
        partition = topic.partitions[index]
        is_asked_for = partition.awaits_recovery and event.broker_id in partition.replicas
        if is_asked_for and item["leader_epoch"] == partition.leader_epoch:
            facts = LogFacts(item["last_epoch"], item["log_end_offset"])
            report = ReportedLog(call["broker_epoch"], item["leader_epoch"], facts)
            logs[topic.topic_id, index] = report
            partitions.append(found)
    draft = Draft(state)
    if logs:
        draft.add(LogsReported(event.broker_id, logs))
        cause = f"broker {event.broker_id} said how far its log goes"
        elect_leaderless(draft, _present(draft.state, partitions), cause)
    return draft.decision({})


def _find(state: ControllerState, topic_id: bytes, index: int) -> tuple[TopicImage, int] | None:
    topic = state.image.topic_by_id(topic_id)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return topic, index


def _present(
    state: ControllerState, partitions: Iterable[tuple[TopicImage, int]]
) -> Iterator[tuple[TopicImage, int]]:
    for topic, index in partitions:
        yield state.image.topics_by_id[topic.topic_id], index
