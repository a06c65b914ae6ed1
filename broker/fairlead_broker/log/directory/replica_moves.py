"""Moves of replicas between log directories of the broker, and preferred directories of new ones.

A directory for the copy in the target keeps the request, and what is copied, so both outlive a
restart. The preferred directory of a replica that is not here yet is remembered until this
process ends, as in Kafka. `log.moving` has the steps of a move.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from fairlead_broker.limits import PREFERRED_DIRECTORIES_MAX
from fairlead_broker.log.files.file_names import (
    DELETE_DIRECTORY_SUFFIX,
    FILE_NAME_BYTES_MAX,
    STRAY_DIRECTORY_SUFFIX,
    future_directory,
)
from fairlead_broker.log.moving.replica_move import ReplicaMove
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from fairlead_broker.log.directory.log_directory import LogDirectory
    from fairlead_broker.log.files.text_files import TopicPartition
    from fairlead_broker.log.log import Log

logger = logging.getLogger(__name__)


class Directories(Protocol):
    """The part of `LogDirectories` that this module uses; that class documents it."""

    paths: tuple[str, ...]
    failures: dict[str, str]
    cordoned: frozenset[str]
    offline: dict[TopicPartition, str]

    @property
    def live(self) -> list[LogDirectory]: ...
    @property
    def has_unknown_logs(self) -> bool: ...
    def log(self, topic: str, partition: int) -> Log | None: ...
    def home(self, log: Log) -> LogDirectory: ...
    def has_left_over(self, key: TopicPartition) -> bool: ...


class ReplicaMoves:
    """`under_way` are moves by partition, in the order in which they were requested."""

    def __init__(self, directories: Directories) -> None:
        self._directories = directories
        self.under_way: dict[TopicPartition, ReplicaMove] = {}
        self._called_back: list[ReplicaMove] = []
        self._preferred: dict[TopicPartition, str] = {}
        self.on_asked: Callable[[], None] | None = None
        """Called when there is work to do; the mover sets it while it runs."""

    def __iter__(self) -> Iterator[ReplicaMove]:
        """Yield the moves that have not ended."""
        yield from self._called_back
        yield from self.under_way.values()

    def next_move(self, running: Collection[ReplicaMove], at_once_max: int) -> ReplicaMove | None:
        """Return the move to begin next; None if there is none, or as many are running as may be.

        Cancelled moves do not wait for those that copy. Of the others, one comes next to whose
        target the fewest are running. The moves of one log come one after the other.
        """
        busy = {move.key for move in running}
        if sum(1 for move in running if move.reason) < at_once_max:
            for move in self._called_back:
                if move.key not in busy:
                    return move
        if sum(1 for move in running if not move.reason) >= at_once_max:
            return None
        busy.update(move.key for move in self._called_back)
        writers = Counter(move.target.path for move in running)
        waiting = (move for key, move in self.under_way.items() if key not in busy)
        return min(waiting, key=lambda move: writers[move.target.path], default=None)

    def ask(self, key: TopicPartition, path: str, *, failed: Mapping[TopicPartition, str]) -> None:
        """Move a replica to a directory, as AlterReplicaLogDirs asks. KafkaError as in Kafka.

        INVALID_TOPIC_EXCEPTION for a name that is too long, LOG_DIR_NOT_FOUND,
        KAFKA_STORAGE_ERROR, INVALID_REPLICA_ASSIGNMENT for a cordoned directory,
        REPLICA_NOT_AVAILABLE for a replica that is not here; its directory is remembered then.
        `failed` are replicas that cannot be used.
        """
        directories = self._directories
        name = future_directory(*key, uuid.uuid4().hex)
        if len(name) > FILE_NAME_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long")
        if path not in directories.paths:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")
        target = next((each for each in directories.live if each.path == path), None)
        if target is None or key in failed or directories.has_left_over(key):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the directory or replica is offline")
        log = directories.log(*key)
        # A move away from a cordoned directory may be cancelled: the replica stays there.
        if path in directories.cordoned and (log is None or directories.home(log) is not target):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{path} is cordoned")
        if log is None:
            self._prefer(key, path)
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "remembered for when it is here")
        move = self.under_way.get(key)
        if move is not None and move.target is target and not move.reason:
            return
        # Also if it has failed, and is about to remove its copy.
        if move is not None and not self._call_back(key, "another directory was asked for"):
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, "it is about to be moved")
        source = directories.home(log)
        if source is target:
            return
        if directories.failures:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a log directory is offline")
        self._begin(log, source, target, name)

    def _begin(self, log: Log, source: LogDirectory, target: LogDirectory, name: str) -> None:
        future = f"{target.path}/{name}"
        try:
            target.disk.make_directory(future)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        target.deferred.note_directory(target.path)
        self.under_way[log.topic, log.partition] = ReplicaMove(log, source, target, future)
        logger.info("%s is to move to %s", log.path, target.path)
        self._tell()

    def _prefer(self, key: TopicPartition, path: str) -> None:
        self._preferred.pop(key, None)
        self._preferred[key] = path
        if len(self._preferred) > PREFERRED_DIRECTORIES_MAX:
            del self._preferred[next(iter(self._preferred))]

    def by_preference(
        self, key: TopicPartition, live: Sequence[LogDirectory]
    ) -> list[LogDirectory]:
        """Return directories for a new log, the best first."""
        move = self.under_way.get(key)
        if move is not None and move.is_switched:
            # The source still has the older log of that name, with the mark that names the target.
            return [each for each in live if each is move.target]
        preferred = self._preferred.get(key)
        live = [each for each in live if each.path not in self._directories.cordoned] or live
        return sorted(live, key=lambda each: (each.path != preferred, len(each.logs)))

    def forget_preference(self, key: TopicPartition) -> None:
        """Forget the preferred directory, because the log was created."""
        self._preferred.pop(key, None)

    def log_goes(self, log: Log) -> None:
        """Cancel the move of a log that is deleted or set aside."""
        self._call_back((log.topic, log.partition), "the replica is not wanted here any more")

    def directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """Give up the moves from or to a directory."""
        for key, move in list(self.under_way.items()):
            if directory in (move.source, move.target) and move.give_up(str(error)):
                self._take_back(key)

    def call_back_cordoned(self) -> None:
        """Cancel moves to cordoned directories that have not been switched yet."""
        for key, move in list(self.under_way.items()):
            if move.target.path in self._directories.cordoned:
                self._call_back(key, f"{move.target.path} is cordoned")

    def _call_back(self, key: TopicPartition, reason: str) -> bool:
        move = self.under_way.get(key)
        if move is None:
            return True
        if not move.call_back(reason):
            return False
        self._take_back(key)
        return True

    def _take_back(self, key: TopicPartition) -> None:
        self._called_back.append(self.under_way.pop(key))
        self._tell()

    def note_over(self, move: ReplicaMove) -> None:
        """Forget a move that has ended."""
        if move in self._called_back:
            self._called_back.remove(move)
        else:
            del self.under_way[move.key]

    def _tell(self) -> None:
        if self.on_asked is not None:
            self.on_asked()

    def resume(self) -> None:
        """Go on with moves from before the start, and remove other copies, after loading."""
        for target in self._directories.live:
            for key, name in target.futures:
                try:
                    self._resume(target, key, name)
                except OSError as error:
                    logger.error("%s/%s is left as it is: %s", target.path, name, error)
            target.futures = []

    def _resume(self, target: LogDirectory, key: TopicPartition, name: str) -> None:
        directories, path = self._directories, f"{target.path}/{name}"
        log = directories.log(*key)
        if log is None and (directories.has_unknown_logs or key in directories.offline):
            return  # The log that it was copied from may be back at the next start.
        source = None if log is None else directories.home(log)
        if log is not None and source not in (None, target) and key not in self.under_way:
            self.under_way[key] = ReplicaMove(log, source, target, path)
            logger.info("%s is still to move to %s", log.path, target.path)
            return
        suffix = STRAY_DIRECTORY_SUFFIX if log is None else DELETE_DIRECTORY_SUFFIX
        gone = path.removesuffix("-future") + suffix
        target.disk.rename(path, gone)
        target.deferred.note_directory(target.path)
        if log is None:
            logger.warning("%s is the copy of a log that is not here: set aside", path)
        else:
            target.removals.add([gone], 0)
