"""Follows the groups of one cluster: reads each group when it is due."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Final

from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_model.resources.hibernation import HIBERNATED
from fairlead_operator.consumer_groups.group_client import BrokersUnreachableError, GroupClient
from fairlead_operator.consumer_groups.group_resource import ClusterKey, ResourceKey
from fairlead_operator.consumer_groups.group_scope import Followed, GroupScope
from fairlead_operator.consumer_groups.group_sight import GroupProblem, GroupSight
from fairlead_operator.consumer_groups.group_status import (
    COORDINATOR_MOVES,
    FOLLOWED,
    NOT_FOUND,
    Verdict,
    build_group_status,
    turned_bad,
)
from fairlead_operator.consumer_groups.reset_record import read_reset_record
from fairlead_operator.consumer_groups.resets import ResetRunner, ResetState
from fairlead_operator.consumer_groups.status_writer import GroupStatusWriter
from fairlead_operator.topics.work_queue import WorkQueue

logger = logging.getLogger(__name__)

BATCH_MAX: Final = 500
"""Groups that are read at once."""
GATHER_S: Final = 0.2
"""How long to collect groups that are due together; after that they stay together."""
RESET_LOOK_S: Final = 2.0
"""How often a group is read whose reset waits."""
AFTER_RESET_S: Final = 0.2
BACKOFF_S_MAX: Final = 30.0
WRITES_IN_FLIGHT_MAX: Final = 8


class ClusterGroups:
    """The groups of one cluster, with its own client; `run` until cancelled."""

    def __init__(
        self,
        cluster: ClusterKey,
        connect: Callable[[], GroupClient],
        scope: GroupScope,
        writer: GroupStatusWriter,
        *,
        looks: dict[str, int],
        now: Callable[[], float],
        wall_clock: Callable[[], datetime],
    ) -> None:
        self.queue: WorkQueue[ResourceKey] = WorkQueue(now)
        self._looks = looks
        self._cluster = cluster
        self._connect = connect
        self._scope = scope
        self._writer = writer
        self._now = now
        self._wall_clock = wall_clock
        self._writes = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)
        self._figures_at: dict[ResourceKey, float] = {}
        """When each group was read whose lag is in the status."""

    async def run(self) -> None:
        """Read groups until cancelled."""
        client = self._connect()
        resets = ResetRunner(client, self._writer, wall_clock=self._wall_clock)
        try:
            while True:
                keys = await self.queue.batch(BATCH_MAX, GATHER_S)
                try:
                    await self._refresh(client, resets, keys)
                except Exception:
                    logger.exception("groups of %s/%s: an unexpected error", *self._cluster)
                    for key in keys:
                        self.queue.retry(key, backoff_s_max=BACKOFF_S_MAX)
                finally:
                    for key in keys:
                        self.queue.finish(key)
        finally:
            await client.close()

    async def _refresh(
        self, client: GroupClient, resets: ResetRunner, keys: list[ResourceKey]
    ) -> None:
        mine = [self._scope.groups[key] for key in keys if self._is_mine(key)]
        sound = [followed for followed in mine if not followed.resource.problem]
        refused = [followed for followed in mine if followed.resource.problem]
        await self._for_each(refused, self._refuse)
        if not sound:
            return
        if self._scope.is_asleep(self._cluster):
            message = "the LogCluster sleeps; the numbers are from before that"
            ready = Verdict(None, HIBERNATED, message)
            await self._for_each(sound, lambda each: self._excuse(each, ready, is_retried=True))
            return
        looked_at = self._now()
        try:
            seen = await client.look(sorted({each.resource.group_id for each in sound}))
        except BrokersUnreachableError as error:
            self._looks["failed"] += 1
            logger.info("groups of %s/%s: %s; asking again", *self._cluster, error)
            ready = _unreachable(error)
            await self._for_each(sound, lambda each: self._excuse(each, ready, is_retried=True))
            return
        self._looks["ok"] += 1
        await self._for_each(
            sound, lambda each: self._attend(resets, each, seen[each.resource.group_id], looked_at)
        )

    async def _for_each(
        self, groups: Iterable[Followed], step: Callable[[Followed], Awaitable[None]]
    ) -> None:
        """Take a step for each resource, all at once; an unexpected error concerns only one."""

        async def guarded(followed: Followed) -> None:
            try:
                await step(followed)
            except Exception:
                key = followed.resource.key
                logger.exception("ConsumerGroup %s/%s: an unexpected error", *key)
                self.queue.retry(key, backoff_s_max=BACKOFF_S_MAX)

        await asyncio.gather(*map(guarded, groups))

    def _is_mine(self, key: ResourceKey) -> bool:
        followed = self._scope.groups.get(key)
        if followed is None:
            self._figures_at.pop(key, None)
            self.queue.succeeded(key)
            return False
        resource = followed.resource
        return resource.is_ours and self._scope.cluster_of(resource) == self._cluster

    async def _attend(
        self,
        resets: ResetRunner,
        followed: Followed,
        sight: GroupSight | GroupProblem,
        looked_at: float,
    ) -> None:
        """Advance the reset of a resource and write its status; schedule its next read."""
        resource = followed.resource
        if isinstance(sight, GroupProblem):
            ready = Verdict(None, COORDINATOR_MOVES, sight.message)
            await self._excuse(followed, ready, is_retried=True)
            return
        self._scope.sights[resource.key] = sight
        async with self._writes:
            try:
                if self._scope.is_paused(resource):
                    state = resets.hold(followed)
                else:
                    state = await resets.advance(followed, sight)
                await self._write_sight(state, sight, looked_at)
            except BrokersUnreachableError as error:
                logger.warning("ConsumerGroup %s/%s: its reset: %s", *resource.key, error)
                self.queue.retry(resource.key, backoff_s_max=BACKOFF_S_MAX)
                return
            except (ApiError, ApiUnavailableError) as error:
                self._note_failed_write(followed, error)
                return
        resets.written(resource.uid)
        self.queue.succeeded(resource.key)
        if state.has_acted:
            interval_s = AFTER_RESET_S
        elif state.is_going_on:
            interval_s = min(RESET_LOOK_S, resource.refresh_s)
        else:
            interval_s = resource.refresh_s
        # Counted from the read, so that groups that were read together stay together.
        self.queue.add(resource.key, max(0.0, looked_at + interval_s - self._now()))

    async def _write_sight(self, state: ResetState, sight: GroupSight, looked_at: float) -> None:
        resource = state.followed.resource
        key, status = resource.key, state.followed.manifest.get("status") or {}
        since_s = looked_at - self._figures_at.get(key, float("-inf"))
        is_early = since_s + GATHER_S < resource.refresh_s and "members" in status
        ready = FOLLOWED if sight.is_known else NOT_FOUND
        after = build_group_status(
            resource,
            status,
            ready,
            self._wall_clock(),
            sight=sight,
            record=state.record,
            repeated_id=state.repeated_id,
            are_figures_kept=is_early or state.has_acted,
            is_paused=self._scope.is_paused(resource),
        )
        await self._writer.write(state.followed, after)
        if state.has_acted:
            self._figures_at.pop(key, None)  # the next read is the first to see them
        elif not is_early:
            self._figures_at[key] = looked_at

    async def _refuse(self, followed: Followed) -> None:
        """Report an invalid spec; the resource returns here after its next change."""
        await self._excuse(
            followed, Verdict(False, "InvalidSpec", followed.resource.problem), is_retried=False
        )

    async def _excuse(self, followed: Followed, ready: Verdict, *, is_retried: bool) -> None:
        """Report why a group cannot be followed now; its last known state stays in the status."""
        status = followed.manifest.get("status") or {}
        after = build_group_status(
            followed.resource,
            status,
            ready,
            self._wall_clock(),
            sight=None,
            record=read_reset_record(status),
            is_seen_kept=True,
            is_paused=self._scope.is_paused(followed.resource),
        )
        try:
            async with self._writes:
                written = await self._writer.write(followed, after)
        except (ApiError, ApiUnavailableError) as error:
            self._note_failed_write(followed, error)
            return
        if turned_bad(status, ready):
            await self._writer.warn(written, ready.reason, ready.message)
        if is_retried:
            self.queue.retry(followed.resource.key, backoff_s_max=BACKOFF_S_MAX)

    def _note_failed_write(self, followed: Followed, error: ApiError | ApiUnavailableError) -> None:
        key = followed.resource.key
        is_expected = isinstance(error, ApiError) and (error.is_conflict or error.is_not_found)
        level = logging.DEBUG if is_expected else logging.WARNING
        logger.log(level, "the status of ConsumerGroup %s/%s: %s", *key, error)
        self.queue.retry(key)


def _unreachable(error: BrokersUnreachableError) -> Verdict:
    text = f"no broker has answered; what is shown was seen before. {error}"
    return Verdict(None, "BrokersNotReachable", text)
