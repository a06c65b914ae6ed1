"""Carries out resets of offsets: choose, record, commit, record; `reset_plan` decides."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from fairlead_operator.conditions import api_time
from fairlead_operator.consumer_groups.group_client import (
    BrokersUnreachableError,
    CommitFailed,
    CommitOutcome,
    Committed,
    GroupBusy,
    GroupClient,
    LogOffsets,
    LogPoint,
)
from fairlead_operator.consumer_groups.group_scope import Followed
from fairlead_operator.consumer_groups.group_sight import GroupSight, Place
from fairlead_operator.consumer_groups.reset_plan import (
    CommitAgain,
    Confirm,
    GiveUp,
    Keep,
    Refusal,
    Settle,
    Wait,
    choose_places,
    decide_reset,
    name_places,
    settle_targets,
)
from fairlead_operator.consumer_groups.reset_record import (
    ResetRecord,
    past_resets,
    read_reset_record,
)
from fairlead_operator.consumer_groups.status_writer import GroupStatusWriter
from fairlead_operator.resources.consumer_group import OffsetReset, moment_ms

logger = logging.getLogger(__name__)

_BUSY_AGAIN = "members joined before the offsets were set: stop them, then the offsets are set"


@dataclass(frozen=True, slots=True)
class ResetState:
    """The state of a reset after a group was read."""

    followed: Followed
    """The resource, which may have been written."""
    record: ResetRecord | None
    repeated_id: str = ""
    has_acted: bool = False
    """Offsets were set, so the last known state of the group is outdated."""

    @property
    def is_going_on(self) -> bool:
        """Whether the group has to be read again soon."""
        return self.record is not None and not self.record.is_over


class ResetRunner:
    """Resets of one cluster; those of one resource never run concurrently."""

    def __init__(
        self,
        client: GroupClient,
        writer: GroupStatusWriter,
        *,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._writer = writer
        self._now = wall_clock
        self._outcomes: dict[str, ResetRecord] = {}
        """By uid: the result of a commit, until the status has it."""

    def written(self, uid: str) -> None:
        """Note that the status has the result of a reset."""
        self._outcomes.pop(uid, None)

    def hold(self, followed: Followed) -> ResetState:
        """Return the state of a resource's reset, without any action."""
        status = followed.manifest.get("status") or {}
        return ResetState(
            followed, self._outcomes.get(followed.resource.uid) or read_reset_record(status)
        )

    async def advance(self, followed: Followed, sight: GroupSight) -> ResetState:
        """Take the steps of a resource's reset that are due now.

        BrokersUnreachableError: it is unknown whether offsets were set. The next read of the group
        shows it, as after an ApiError.
        """
        resource = followed.resource
        status = followed.manifest.get("status") or {}
        last = self._outcomes.get(resource.uid) or read_reset_record(status)
        past = past_resets(status, last)
        step = decide_reset(resource.reset, last, past, sight)
        match step:
            case Keep(record, repeated_id):
                return ResetState(followed, record, repeated_id)
            case Wait(message):
                return ResetState(followed, self._wait(resource.reset, last, message))
            case Settle():
                return await self._settle(followed, sight)
            case CommitAgain(record):
                return await self._commit_again(followed, record)
            case Confirm(record):
                return ResetState(followed, self._done(record))
            case GiveUp(record, reason, message):
                return ResetState(followed, record.turned("Failed", self._now(), message, reason))
            case _:
                assert_never(step)

    def _wait(
        self, wish: OffsetReset | None, last: ResetRecord | None, message: str
    ) -> ResetRecord | None:
        if wish is None:
            return last
        if last is not None and last.id == wish.id and last.phase == "Waiting":
            return replace(last, message=message, reason="")
        return ResetRecord(wish.id, "Waiting", api_time(self._now()), message=message)

    async def _settle(self, followed: Followed, sight: GroupSight) -> ResetState:
        wish = followed.resource.reset
        if wish is None:
            return ResetState(followed, None)
        last = read_reset_record(followed.manifest.get("status") or {})
        is_known = last is not None and last.id == wish.id and last.phase == "Waiting"
        since = last.at if last is not None and is_known else api_time(self._now())
        record = ResetRecord(wish.id, "Waiting", since)
        try:
            targets = await self._targets(wish, sight)
        except BrokersUnreachableError as error:
            text = f"the new offsets are not known yet: {error}"
            return ResetState(followed, replace(record, reason="BrokersNotReachable", message=text))
        if isinstance(targets, Refusal):
            failed = record.turned("Failed", self._now(), targets.message, targets.reason)
            return ResetState(followed, failed)
        before = {place: sight.committed[place] for place in targets if place in sight.committed}
        text = f"setting the offsets of {len(targets)} partitions"
        record = replace(
            record.turned("Committing", self._now(), text), targets=targets, before=before
        )
        followed = await self._writer.write_reset(followed, record)
        return await self._commit(followed, record)

    async def _targets(self, wish: OffsetReset, sight: GroupSight) -> dict[Place, int] | Refusal:
        counts = await self._client.partition_counts({topic.name for topic in wish.topics})
        places = choose_places(wish, sight.committed, counts)
        if isinstance(places, Refusal):
            return places
        starts = await self._client.log_offsets(places, LogPoint.START)
        ends = await self._client.log_offsets(places, LogPoint.END)
        at_time = LogOffsets()
        if wish.timestamp is not None:
            at_time = await self._client.log_offsets(places, moment_ms(wish.timestamp))
        failed = starts.failed | ends.failed | at_time.failed
        if failed:
            place, problem = min(failed.items())
            raise BrokersUnreachableError(f"{name_places([place])}: {problem}")
        unknown = starts.unknown | ends.unknown | at_time.unknown
        # Offsets of a deleted topic remain for a while; they cannot be set.
        known = [place for place in places if place not in unknown]
        if unknown and (wish.topics or not known):
            return Refusal("UnknownTopic", f"there is no {name_places(unknown)}")
        return settle_targets(
            wish,
            known,
            committed=sight.committed,
            starts=starts.offsets,
            ends=ends.offsets,
            at_time=at_time.offsets,
        )

    async def _commit_again(self, followed: Followed, record: ResetRecord) -> ResetState:
        """Commit recorded targets of an earlier read, if the API server still has that record."""
        now = await self._writer.read(followed)
        stored = None if now is None else read_reset_record(now.manifest.get("status") or {})
        if now is None or stored != record:
            logger.info("ConsumerGroup %s/%s: looking at its reset again", *followed.resource.key)
            return ResetState(now or followed, stored)
        return await self._commit(now, record)

    async def _commit(self, followed: Followed, record: ResetRecord) -> ResetState:
        resource = followed.resource
        outcome = await self._client.commit(resource.group_id, record.targets)
        after = self._conclude(record, outcome)
        self._outcomes[resource.uid] = after
        logger.info(
            "ConsumerGroup %s/%s: reset %s of group %s: %s: %s",
            *resource.key,
            record.id,
            resource.group_id,
            after.phase,
            after.message,
        )
        return ResetState(followed, after, has_acted=True)

    def _conclude(self, record: ResetRecord, outcome: CommitOutcome) -> ResetRecord:
        match outcome:
            case Committed():
                return self._done(record)
            case GroupBusy():
                return ResetRecord(record.id, "Waiting", api_time(self._now()), message=_BUSY_AGAIN)
            case CommitFailed(message):
                text = f"the coordinator refused offsets: {message}"
                return record.turned("Failed", self._now(), text, "Refused")

    def _done(self, record: ResetRecord) -> ResetRecord:
        text = f"the offsets of {len(record.targets)} partitions are set"
        return record.turned("Done", self._now(), text)
