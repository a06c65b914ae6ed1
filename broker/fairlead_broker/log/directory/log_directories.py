"""The log directories of a broker (`log.dirs`): mostly one, else one for each disk, as in Kafka.

Each is a `LogDirectory` that knows nothing of the others, with its own lock, identity, checkpoints
and marker. This module decides what concerns several of them. A new log goes to the directory with
the fewest logs that is not cordoned. No partition may be in two directories. All directories give
one report on the start (`joint_start`). If a directory fails, only its logs go offline. The broker
serves as long as one directory works. The last one never counts as failed, so a broker with one
directory behaves as if this module did not exist.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from fairlead_broker.directory_path import absolute_directory
from fairlead_broker.disk import DirectoryEntry, RealDisk, remove_tree
from fairlead_broker.log.directory.identity import ForeignDirectoryError
from fairlead_broker.log.directory.joint_start import DirectoryStart, JointStart, join_starts
from fairlead_broker.log.directory.load_report import LoadReport
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.directory.replica_moves import ReplicaMoves
from fairlead_broker.log.directory.scan import scan_directory
from fairlead_broker.log.directory.switched_logs import settle_switches
from fairlead_broker.log.files.file_names import LOG_SUFFIX, partition_directory
from fairlead_broker.log.files.read_cache import ReadCache
from fairlead_broker.log.files.text_files import NewerFormatError, TopicPartition
from fairlead_broker.log.full_disk import is_lack_of_room
from fairlead_broker.log.log import Log
from fairlead_broker.log.recovery.pool import RecoveryProgress
from fairlead_model.configs.cordoned_directories import cordoned_among
from fairlead_model.configs.log_config import LogConfig
from fairlead_model.metadata_seen import MetadataSeen
from fairlead_wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class DuplicateLogError(Exception):
    """A partition is in two log directories; `str()` says in which."""


class LogDirectories:
    """`failures` are the directories that could not be opened or have failed: path and reason."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self.directories = tuple(directories)
        """The directories that could be opened, in the order of `log.dirs`."""
        self.paths = tuple(directory.path for directory in directories)
        """The paths of all directories in the settings."""
        self.failures: dict[str, str] = {}
        self.offline: dict[TopicPartition, str] = {}
        """Logs that could not be opened at start, and why."""
        self.cordoned: frozenset[str] = frozenset()
        """Paths of directories that keep their logs but get no new ones (`cordoned.log.dirs`)."""
        self._strangers: tuple[str, ...] = ()
        self._by_path = {directory.path: directory for directory in directories}
        self._unmoved: dict[TopicPartition, str] = {}
        """Paths of logs that should be gone, but the disk failed to rename them."""
        self._starts: list[DirectoryStart] = []
        self.moves = ReplicaMoves(self)
        """Replicas that move, or have to move, from one of the directories to another."""

    @classmethod
    def open(
        cls, paths: Sequence[str], *, node_id: int, cluster_id: str | None = None
    ) -> "LogDirectories":
        """Lock and claim all. DirectoryInUseError, ForeignDirectoryError or OSError if impossible.

        A disk that cannot be read does not prevent the start; OSError if it is the only one.
        """
        opened: list[LogDirectory] = []
        failures: dict[str, str] = {}
        cache = ReadCache(RealDisk())
        try:
            for path in paths:
                try:
                    directory = LogDirectory.open(
                        path, node_id=node_id, cluster_id=cluster_id, cache=cache
                    )
                except OSError as error:
                    if path == paths[-1] and not opened:
                        raise
                    logger.error("log directory %s cannot be used: %s", path, error)
                    failures[path] = str(error)
                else:
                    opened.append(directory)
            _check_kinship(opened)
        except BaseException:
            for directory in opened:
                directory.close(clean=False)
            raise
        directories = cls(opened)
        directories.paths = tuple(paths)
        directories.failures = failures
        return directories

    @property
    def live(self) -> list[LogDirectory]:
        """The directories that have not failed. The last one never counts as failed."""
        return [each for each in self.directories if each.path not in self.failures]

    @property
    def is_cordoned(self) -> bool:
        """True if all working directories are cordoned: this broker must get no new replicas."""
        return all(each.path in self.cordoned for each in self.live)

    def cordon(self, entries: Iterable[str]) -> None:
        """Set which directories get no new replicas, and cancel moves to them.

        An entry that is not in `log.dirs` is ignored: it may have been removed since.
        """
        named = map(absolute_directory, entries)
        cordoned, strangers = cordoned_among(named, self.paths)
        if strangers not in ((), self._strangers):
            logger.warning(
                "cordoned.log.dirs names what is not in log.dirs: %s", ", ".join(strangers)
            )
        self._strangers = strangers
        if cordoned != self.cordoned:
            logger.info("cordoned log directories: %s", ", ".join(sorted(cordoned)) or "none")
        self.cordoned = cordoned
        self.moves.call_back_cordoned()

    @property
    def has_unknown_logs(self) -> bool:
        """True if a directory could not be opened: its logs are unknown."""
        return len(self.directories) < len(self.paths)

    @property
    def drained(self) -> list[str]:
        """Paths of cordoned directories without a replica: the broker may be started without them.

        The list is empty as long as a log or a directory could not be opened: the places of all
        logs are not known then.
        """
        if self.offline or self.has_unknown_logs:
            return []
        busy = {each.path for move in self.moves for each in (move.source, move.target)}
        return [
            each.path
            for each in self.live
            if each.path in self.cordoned and each.path not in busy and not each.logs
        ]

    @property
    def logs(self) -> Iterator[Log]:
        """The usable logs."""
        return chain.from_iterable(directory.logs for directory in self.directories)

    def log(self, topic: str, partition: int) -> Log | None:
        """Return the log of a partition, None if there is no usable one."""
        for directory in self.directories:
            log = directory.log(topic, partition)
            if log is not None:
                return log
        return None

    def home(self, log: Log) -> LogDirectory:
        """Return the directory that a log is in."""
        return self._by_path[log.path.rpartition("/")[0]]

    @property
    def start(self) -> JointStart:
        """What the registration reports on this start, once all directories are loaded."""
        return join_starts(self._starts)

    @property
    def cluster_id(self) -> str:
        return self.directories[0].cluster_id or next(
            (each.cluster_id for each in self.directories if each.cluster_id), ""
        )

    @property
    def metadata_seen(self) -> MetadataSeen:
        """The latest version of the metadata that any of the disks has noted."""
        return max(directory.metadata_seen for directory in self.directories)

    def high_watermark(self, topic: str, partition: int) -> int:
        """Return the high watermark of a log in the checkpoint; 0 if it has none."""
        key = (topic, partition)
        for directory in self.directories:
            if directory.log(*key) is not None:
                return directory.high_watermarks.get(key, 0)
        return 0

    def assign_cluster_id(self, cluster_id: str) -> None:
        """Set the controller's cluster id. ForeignDirectoryError if the data has another one."""
        self._each(lambda directory: directory.assign_cluster_id(cluster_id))

    def load(
        self,
        now_ms: int,
        *,
        config_for: Callable[[str, int], LogConfig],
        recovery_workers: int = 2,
        on_progress: Callable[[RecoveryProgress], None] = lambda _: None,
    ) -> LoadReport:
        """Open every log of every directory. Blocks: in a thread. DuplicateLogError."""
        if len(self.paths) > 1:
            settle_switches(self.live, now_ms)
        if len(self.directories) > 1:
            self._check_duplicates()
        total = LoadReport()
        lost_writes: dict[int, OSError] = {}
        for directory in self.live:
            try:
                device = directory.disk.file_system_id(directory.path) if len(self.paths) > 1 else 0
                report = directory.load(
                    now_ms,
                    config_for=config_for,
                    recovery_workers=recovery_workers,
                    on_progress=on_progress,
                    lost_writes=lost_writes.get(device),
                )
            except NewerFormatError:
                raise
            except OSError as error:
                if len(self.live) == 1:
                    raise
                self._leave_out(directory, error)
                continue
            if report.write_back_error is not None:
                lost_writes[device] = report.write_back_error
            total.add(report)
            self._starts.append(_start_of(directory, report))
        self._forget_found(total)
        self.offline = dict(total.offline)
        self.moves.resume()
        return total

    def _check_duplicates(self) -> None:
        """Raise DuplicateLogError if a partition is in two directories: a person has to choose."""
        found: dict[TopicPartition, str] = {}
        for directory in self.live:
            try:
                scan = scan_directory(directory.disk, directory.path)
            except OSError as error:
                self._leave_out(directory, error)
                continue
            for key, name in scan.partitions.items():
                path = f"{directory.path}/{name}"
                if key in found:
                    raise DuplicateLogError(
                        f"{found[key]} and {path} are logs of the same partition: move the one "
                        "away that is not wanted any more, mostly the older one"
                    )
                found[key] = path

    def _leave_out(self, directory: LogDirectory, error: OSError) -> None:
        """Go on without a directory that cannot be read."""
        logger.error("log directory %s cannot be read: %s", directory.path, error)
        self.failures[directory.path] = str(error)
        self.directories = tuple(each for each in self.directories if each is not directory)
        directory.release()
        if not self.directories:
            raise error

    def _forget_found(self, report: LoadReport) -> None:
        """Do not count a log as lost if it is in another directory than its checkpoint."""
        report.missing = [key for key in report.missing if self.log(*key) is None]
        self._starts = [
            DirectoryStart(
                start.record,
                start.is_whole,
                start.logs,
                [key for key in start.damaged if key in report.missing or key in start.logs],
            )
            for start in self._starts
        ]

    def confirm_start(self, broker_epoch: int) -> None:
        """Let logs take appends: the controller knows this start. A few fsyncs a directory.

        All directories note the start before any of them removes its marker. So after a crash in
        between they still agree.
        """
        self._each(lambda directory: directory.note_start(broker_epoch))
        self._each(lambda directory: directory.begin_appends())

    def go_on(self) -> None:
        """Let logs take appends: the registered start that the directories have noted goes on."""
        self._each(lambda directory: directory.go_on())

    def _each(self, act: Callable[[LogDirectory], None]) -> None:
        """Call `act` for every directory; one that raises OSError fails, unless it is the last."""
        for directory in self.live:
            try:
                act(directory)
            except OSError as error:
                if not self.fail(directory, error):
                    raise

    def fail(self, directory: LogDirectory, error: OSError) -> bool:
        """Take a directory and its logs offline; False if it is the last one: it stays in use."""
        if self.live == [directory]:
            return False
        self.failures[directory.path] = str(error)
        self.moves.directory_failed(directory, error)
        logger.critical("log directory %s has failed: %s", directory.path, error)
        for log in directory.logs:
            if not log.is_offline:
                log.go_offline(error)
        return True

    def note_metadata(self, seen: MetadataSeen) -> None:
        """Note on each disk which version of the metadata was seen; one disk is enough to know."""
        errors = []
        for directory in self.live:
            try:
                directory.note_metadata(seen)
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def create_log(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig, now_ms: int
    ) -> Log:
        """Create an empty log in the preferred directory, else in the one with the fewest logs.

        A cordoned directory gets it only if all are cordoned: then the controller does not know
        that yet, or assigns a replica that was here before.

        OSError if no directory takes it. KafkaError if files of that name in any directory cannot
        be moved away, or are on their way to a directory that has failed.
        """
        key = (topic, partition)
        if key in self._unmoved:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self._unmoved[key]} could not be moved away"
            )
        candidates = self.moves.by_preference(key, self.live)
        for directory in candidates:
            try:
                log = directory.create_log(topic, partition, topic_id, config, now_ms)
                self.moves.forget_preference(key)
                return log
            except FileExistsError:
                raise
            except OSError as error:
                if not _is_undone(directory, key) or directory is candidates[-1]:
                    raise
                logger.error("no log of %s-%d in %s: %s", *key, directory.path, error)
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"an earlier log of {topic}-{partition} was about to move to a directory that has "
            "failed",
        )

    def delete_log(self, log: Log, now_ms: int) -> None:
        """Rename the log's directory, so that it is no log any more, and remove it later."""
        self.moves.log_goes(log)
        self._note_unmoved(log, self.home(log).delete_log(log, now_ms))

    def set_aside(self, log: Log) -> str:
        """Take a log out of service that the controller does not know; return where its data is."""
        self.moves.log_goes(log)
        target = self.home(log).set_aside(log)
        self._note_unmoved(log, target)
        return target

    def note_left_over(self, key: TopicPartition, path: str) -> None:
        """Create no log of that name: the disk failed to rename the old log, which has moved."""
        self._unmoved[key] = path

    def has_left_over(self, key: TopicPartition) -> bool:
        """Tell whether files of that name could not be moved away."""
        return key in self._unmoved

    def _note_unmoved(self, log: Log, target: str) -> None:
        """Note a log that was not renamed: a new one must not begin in another directory."""
        if target == log.path and len(self.paths) > 1:
            self._unmoved[log.topic, log.partition] = log.path

    def close(self, *, clean: bool, broker_epoch: int = -1, now_ms: int = 0) -> bool:
        """Stop; with `clean`, flush everything and mark the stop as clean. Blocks: in a thread.

        All directories are flushed before one is marked. Return whether all were marked; a full
        disk may have no room for the marker.
        """
        failed = [each for each in self.directories if each.path in self.failures]
        flushed = [each for each in self.live if clean and self._is_flushed(each, now_ms)]
        is_clean = len(flushed) == len(self.paths)
        for directory in self.directories:
            is_marked = directory in flushed and directory not in failed
            try:
                directory.release(marked_epoch=broker_epoch if is_marked else None)
            except OSError as error:
                if len(self.paths) == 1 and not is_lack_of_room(error):
                    raise
                logger.error("%s is not marked as clean: %s", directory.path, error)
                is_clean = False
        return is_clean

    def _is_flushed(self, directory: LogDirectory, now_ms: int) -> bool:
        try:
            return directory.flush_all(now_ms)
        except OSError as error:
            if len(self.paths) == 1:
                raise
            logger.error("%s is not flushed: %s", directory.path, error)
            return False


def _check_kinship(directories: Sequence[LogDirectory]) -> None:
    """Raise ForeignDirectoryError if two belong to different clusters, or one is a copy."""
    first: dict[str, str] = {}
    cluster = ("", "")
    for directory in directories:
        twin = first.setdefault(directory.directory_id, directory.path)
        if twin != directory.path:
            raise ForeignDirectoryError(
                f"{twin} and {directory.path} have the same directory.id: one is a copy"
            )
        if directory.cluster_id and cluster[0] not in ("", directory.cluster_id):
            raise ForeignDirectoryError(
                f"{cluster[1]} belongs to cluster {cluster[0]}, {directory.path} to "
                f"{directory.cluster_id}"
            )
        if directory.cluster_id:
            cluster = (directory.cluster_id, directory.path)


def _start_of(directory: LogDirectory, report: LoadReport) -> DirectoryStart:
    logs = [(log.topic, log.partition) for log in directory.logs]
    return DirectoryStart(directory.start, report.is_whole, logs, report.unclean)


def _segments(directory: LogDirectory, path: str) -> list[DirectoryEntry]:
    entries = directory.disk.list_directory(path)
    return [entry for entry in entries if entry.name.endswith(LOG_SUFFIX)]


def _is_undone(directory: LogDirectory, key: TopicPartition) -> bool:
    """Remove the rest of a log that could not be created; tell whether nothing remains."""
    path = f"{directory.path}/{partition_directory(*key)}"
    try:
        if directory.disk.exists(path):
            if any(entry.size for entry in _segments(directory, path)):
                return False
            remove_tree(directory.disk, path)
    except OSError as error:
        logger.error("%s cannot be removed: %s", path, error)
        return False
    return True
