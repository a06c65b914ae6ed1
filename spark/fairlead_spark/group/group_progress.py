"""A query's progress as offsets of a consumer group, so that every Kafka tool shows its lag.

Spark's checkpoint is the truth, and the group only a mirror: a failed commit is logged and retried
later, and never delays a batch. But a query ends if another driver has replaced it
(`group_member`): the older of the two must not go on.

The member lives in a thread: it has to answer its coordinator while Spark works on a batch.
"""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Final

from fairlead_spark import limits
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import CONNECTION_ERRORS, PassingError
from fairlead_spark.errors import FencedError, OptionError, SourceError
from fairlead_spark.group.group_member import GroupMember
from fairlead_spark.group.group_membership import Instance
from fairlead_spark.offsets import PartitionValues, TopicPartition
from fairlead_spark.options import Subscription

logger = logging.getLogger(__name__)
_NOTHING: Final[PartitionValues] = {}


class GroupProgress:
    """Commits a query's progress to group `settings.group_id`, for process `instance`."""

    def __init__(
        self, settings: ClientSettings, instance: Instance, subscription: Subscription
    ) -> None:
        self._group = settings.group_id
        since_ms = time.time_ns() // 1_000_000
        self._member = GroupMember(settings, instance, subscription, since_ms=since_ms)
        self._thread: threading.Thread | None = None
        # The thread shares the following fields, under this condition.
        self._changed = threading.Condition()
        self._wanted: PartitionValues = _NOTHING
        self._done: PartitionValues = _NOTHING
        self._truncated: set[TopicPartition] = set()
        """Their logs end before what was read: the query's next position is there."""
        self._set_back: frozenset[TopicPartition] = frozenset()
        """The wanted offset is lower than before, because the log was truncated."""
        self._has_joined = False
        self._failure: Exception | None = None
        """Why the last try failed."""
        self._refusals = 0
        """Failed tries that a retry will not soon improve."""
        self._end: Exception | None = None
        """The error with which the thread has ended."""
        self._is_closing = False
        self._is_in_trouble = False
        """The thread retries by itself: no batch waits for it."""

    def maybe_commit(self, positions: PartitionValues) -> bool:
        """Commit the ends of a finished batch; False if that is not needed, or if it failed.

        FencedError: another driver has replaced this one.
        """
        with self._changed:
            if self._end is not None:
                raise self._end
            if self._has_joined and self._failure is None:
                self._is_in_trouble = False
            if positions == self._done:
                return False
            back = {each for each in self._truncated if self._lies_before(each, positions)}
            self._truncated -= back
            self._set_back |= back
            self._wanted = dict(positions)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="group", daemon=True)
                self._thread.start()
            if not self._is_in_trouble:
                self._wait_for(self._wanted)
            is_done = self._done == self._wanted
            if not is_done and not self._is_in_trouble:
                logger.warning(
                    "group %s does not show the progress of this query yet: %s",
                    self._group,
                    self._failure or "its coordinator does not answer",
                )
            self._is_in_trouble = not is_done
            return is_done

    def note_truncated(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the query's next positions lower the group's: the query continues at these ends."""
        with self._changed:
            self._truncated.update(partitions)

    def _lies_before(self, where: TopicPartition, positions: PartitionValues) -> bool:
        now, before = positions.get(where), self._wanted.get(where)
        return now is not None and before is not None and now < before

    def close(self) -> None:
        """Leaves the group."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(limits.GROUP_LEAVE_S)

    def _wait_for(self, wanted: PartitionValues) -> None:
        """Wait until the thread has committed; not for long, and not if it is refused."""
        begun, refusals = time.monotonic(), self._refusals

        def patience_s() -> float:
            bound_s = limits.GROUP_TIMEOUT_S if self._has_joined else limits.GROUP_FIRST_JOIN_S
            return begun + bound_s - time.monotonic()

        while self._done != wanted and self._refusals == refusals and patience_s() > 0:
            self._changed.wait(patience_s())
            if self._end is not None:
                raise self._end

    def _run(self) -> None:
        try:
            self._serve()
        except Exception as error:
            if not isinstance(error, FencedError):
                logger.exception("group %s: the progress of this query is lost", self._group)
            with self._changed:
                self._end = error
        finally:
            self._member.leave()
            with self._changed:
                self._changed.notify_all()

    def _serve(self) -> None:
        backoff_s = refused_s = limits.RETRY_BACKOFF_S
        while not self._is_closing:
            try:
                self._do()
            except FencedError:
                raise
            except (PassingError, *CONNECTION_ERRORS) as error:
                self._note(error)
                delay_s, backoff_s = backoff_s, min(2 * backoff_s, limits.RETRY_BACKOFF_S_MAX)
            except (SourceError, OptionError) as error:
                # An OptionError, too: the clientConfig file is read for each connection, and may
                # soon be replaced.
                self._note(error, is_refusal=True)
                delay_s, refused_s = refused_s, min(2 * refused_s, limits.GROUP_BACKOFF_S_MAX)
            else:
                delay_s = limits.GROUP_HEARTBEAT_S
                backoff_s = refused_s = limits.RETRY_BACKOFF_S
            with self._changed:
                # New positions need no commit at once if the last ones failed.
                self._changed.wait_for(
                    lambda: self._is_closing or (self._failure is None and self._is_due()), delay_s
                )

    def _do(self) -> None:
        with self._changed:
            wanted, set_back, is_due = self._wanted, self._set_back, self._is_due()
        if is_due:
            self._member.commit(wanted, set_back)
        else:
            self._member.stay()
        with self._changed:
            self._has_joined, self._failure = True, None
            self._done = wanted
            self._set_back -= set_back
            self._changed.notify_all()

    def _is_due(self) -> bool:
        return self._wanted != self._done

    def _note(self, error: Exception, *, is_refusal: bool = False) -> None:
        logger.debug("group %s: trying again: %s", self._group, error)
        with self._changed:
            self._failure = error
            self._refusals += is_refusal
            self._changed.notify_all()
