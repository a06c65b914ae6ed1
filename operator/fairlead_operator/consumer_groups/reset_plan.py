"""The next step of an offset reset, and the offsets that it sets. Pure.

A reset happens once, whichever process dies at any time. First its targets are chosen and written
to the status (phase Committing), then committed, then the reset is Done. If an operator dies
between the commit and Done, the next operator finds the targets and the offsets that were committed
before:

* all partitions are at their targets: the commit has landed;
* the group has no members, and each partition is at its earlier offset or at its target: the same
  offsets are committed (again), which changes nothing if they had landed;
* anything else: the group has read on, from the old offsets or from the new ones, and nobody can
  tell which. Another commit could rewind it twice, so the reset fails with that message.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from fairlead_operator.consumer_groups.group_sight import GroupSight, Place
from fairlead_operator.consumer_groups.reset_record import ResetRecord
from fairlead_operator.resources.consumer_group import RESET_PARTITIONS_MAX, OffsetReset

MEMBERS_NAMED_MAX: Final = 5
PLACES_NAMED_MAX: Final = 5
RECORD_BYTES_MAX: Final = 1_000_000
"""Of the 1.5 MiB that the API server accepts; the spec and the rest of the status need the rest."""
TOPIC_BYTES: Final = 130
"""For a topic's entry in a record, and for the API server's metadata about its fields; the topic's
name in both is extra."""
PARTITION_BYTES: Final = 44
"""For a partition's two offsets, at most."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Do nothing; the last reset, if there is one, stays as it is."""

    record: ResetRecord | None
    repeated_id: str = ""
    """The id of the requested reset, if it was already over before."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait, because the group has members."""

    message: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Choose the targets, record them, commit them."""


@dataclass(frozen=True, slots=True)
class CommitAgain:
    """Commit recorded targets; it is unknown whether they were committed."""

    record: ResetRecord


@dataclass(frozen=True, slots=True)
class Confirm:
    """Record the success: the offsets are at their targets."""

    record: ResetRecord


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Fail the reset: it can never be carried out."""

    record: ResetRecord
    reason: str
    message: str


ResetStep: TypeAlias = Keep | Wait | Settle | CommitAgain | Confirm | GiveUp


def decide_reset(
    wish: OffsetReset | None, last: ResetRecord | None, past: Collection[str], sight: GroupSight
) -> ResetStep:
    """Decide about the reset that a spec requests, after the last reset and those before it."""
    if last is not None and last.phase == "Committing":
        return _resolve(last, sight)
    settled = last if last is not None and last.is_over else None
    if wish is None:
        return Keep(settled)
    if settled is not None and settled.id == wish.id:
        return Keep(settled)
    if wish.id in past:
        return Keep(settled, repeated_id=wish.id)
    if not sight.is_quiet:
        return Wait(describe_members(sight))
    return Settle()


def _resolve(record: ResetRecord, sight: GroupSight) -> ResetStep:
    """Find out what became of a commit whose outcome was not recorded."""
    now = {place: sight.committed.get(place) for place in record.targets}
    is_change = any(record.before.get(place) != target for place, target in record.targets.items())
    if now == record.targets and (is_change or sight.is_quiet):
        return Confirm(record)
    is_untouched = all(
        offset in {record.before.get(place), record.targets[place]} for place, offset in now.items()
    )
    if sight.is_quiet and is_untouched:
        return CommitAgain(record)
    return GiveUp(
        record,
        "OutcomeUnknown",
        "the operator was interrupted while it committed the offsets, and the group has been active"
        " since: whether they were set is not known, and they are not set again. Compare the "
        "group's offsets with lastReset.topics; a reset with a new id is a new attempt",
    )


def describe_members(sight: GroupSight) -> str:
    """Return which members keep a reset waiting."""
    if not sight.members:
        return f"the group is in state {sight.state}; its offsets can be set when it is empty"
    names = sorted(
        f"{member.client_id or member.member_id} ({member.host})" for member in sight.members
    )
    shown = ", ".join(names[:MEMBERS_NAMED_MAX])
    more = len(names) - MEMBERS_NAMED_MAX
    rest = f" and {more} more" if more > 0 else ""
    return f"stop the group's {len(names)} members to let its offsets be set: {shown}{rest}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a reset can never be carried out as requested."""

    reason: str
    message: str


def choose_places(
    wish: OffsetReset, committed: Mapping[Place, int], partition_counts: Mapping[str, int]
) -> list[Place] | Refusal:
    """Return the partitions to set; `partition_counts` has each topic that the reset names."""
    places: list[Place] = []
    for topic in wish.topics:
        count = partition_counts.get(topic.name)
        if count is None:
            return Refusal("UnknownTopic", f"there is no topic {topic.name}")
        wrong = [number for number in topic.partitions if number >= count]
        if wrong:
            text = f"topic {topic.name} has {count} partitions and no partition {wrong[0]}"
            return Refusal("UnknownPartition", text)
        numbers = sorted(set(topic.partitions)) or range(count)
        places += [(topic.name, number) for number in numbers]
    if not wish.topics:
        places = sorted(committed)
        if not places:
            return Refusal(
                "NothingToReset",
                "the group has not committed an offset: name the topics to set in "
                "offsetReset.topics",
            )
    if len(places) > RESET_PARTITIONS_MAX:
        return Refusal(
            "TooManyPartitions",
            f"{len(places)} partitions are to be set, and one reset takes {RESET_PARTITIONS_MAX}: "
            "name fewer in offsetReset.topics and set the others with a second ConsumerGroup",
        )
    topics = {topic for topic, _ in places}
    if not has_room(topics, len(places)):
        return Refusal(
            "TooManyPartitions",
            f"partitions of {len(topics)} topics are to be set, and a resource has no room for so "
            "many: name fewer in offsetReset.topics and set the others with a second ConsumerGroup",
        )
    if wish.to == "ShiftBy":
        lacking = [place for place in places if place not in committed]
        if lacking:
            return Refusal(
                "NoCommittedOffset",
                f"there is nothing to shift from in {name_places(lacking)}: the group has "
                "committed no offset there",
            )
    return places


def has_room(topics: Collection[str], partitions: int) -> bool:
    """Tell whether the API server accepts a resource with the record of a reset."""
    names = sum(len(name) for name in topics)
    return 2 * names + TOPIC_BYTES * len(topics) + PARTITION_BYTES * partitions <= RECORD_BYTES_MAX


def settle_targets(
    wish: OffsetReset,
    places: Collection[Place],
    *,
    committed: Mapping[Place, int],
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    at_time: Mapping[Place, int],
) -> dict[Place, int]:
    """Return the target of each partition, within its log.

    `at_time` has the first offset of the requested time. If it is missing or negative, no record is
    that late, and the target is the end.
    """
    targets = {}
    for place in places:
        start, end = starts[place], ends[place]
        match wish.to:
            case "Earliest":
                target = start
            case "Latest":
                target = end
            case "Timestamp":
                found = at_time.get(place, -1)
                target = found if found >= 0 else end
            case "Offset":
                target = wish.offset or 0
            case "ShiftBy":
                target = committed[place] + (wish.shift_by or 0)
        targets[place] = min(max(target, start), end)
    return targets


def name_places(places: Collection[Place]) -> str:
    """Return partitions' names as Kafka writes them; only some of them if there are many."""
    shown = ", ".join(f"{topic}-{number}" for topic, number in sorted(places)[:PLACES_NAMED_MAX])
    more = len(places) - PLACES_NAMED_MAX
    return shown + (f" and {more} more" if more > 0 else "")
