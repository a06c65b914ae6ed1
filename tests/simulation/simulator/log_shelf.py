"""The log directory of a simulated broker, as `LocalReplicas` uses it: logs by name, on disk."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from simulator.disk_log import DiskLog
from simulator.memory_log import CONFIG
from simulator.records import RECORD_SIZE

from fairlead_broker.settings import CleanerLimits, build_settings
from fairlead_model.configs.cordoned_directories import EVERY_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Collection

    from simulator.broker_host import BrokerHost
    from simulator.disk_log import AnyLog
    from simulator.world import World

    from fairlead_broker.settings import Settings


@lru_cache(maxsize=8)
def _settings(node_id: int) -> Settings:
    file = {
        "node.id": str(node_id),
        "log.dirs": "/simulated",
        "fairlead.cluster.secret.file": "/simulated/secret",
        "replica.lag.time.max.ms": "1500",
        "replica.fetch.wait.max.ms": "500",
    }
    return build_settings(file=file, environment={}, assignments={})


def rack_of(broker_id: int) -> str:
    """Return the rack of a broker: each broker has its own."""
    return f"rack-{broker_id}"


class SimSettings:
    """A broker's settings, with small sizes, because the records are small."""

    replica_fetch_max_bytes = 20 * RECORD_SIZE
    replica_fetch_response_max_bytes = 50 * RECORD_SIZE
    selects_replicas_by_rack = True

    def __init__(self, node_id: int, world: World) -> None:
        self._all = _settings(node_id)
        self.rack = rack_of(node_id)
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._all, name)

    def cleaner_limits(self, values: Any) -> CleanerLimits:
        plan = self._world.compaction
        assert plan is not None
        return CleanerLimits(plan.dedupe_buffer_bytes, float("inf"))

    def log_config(self, overrides: Any, values: Any = None, unreadable: Any = None) -> Any:
        if "cleanup.policy" not in overrides:
            return CONFIG
        if self._world.transactions is not None:
            return self._world.transactions.log_config(overrides)
        plan = self._world.compaction
        return CONFIG if plan is None else plan.config


class SimDirectory:
    """The one log directory, for the code that watches its free space."""

    path = "/simulated"
    is_full = False

    def __init__(self, host: BrokerHost) -> None:
        self._disk = host.disk
        self.disk = self

    @property
    def logs(self) -> list[AnyLog]:
        return list(self._disk.logs.values())

    def bytes_free(self, _: str) -> int:
        return 0 if self._disk.is_full else 1 << 40


class LogShelf:
    """One process's view of the disk. Names are unique, as names of directories are."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host
        self._disk = host.disk
        self.offline: dict[tuple[str, int], str] = {}
        self.has_unknown_logs = False
        self._directory = SimDirectory(host)
        self.live = [self._directory]
        self.is_cordoned = False
        self.logs = list(host.disk.logs.values())
        self.high_watermarks = {
            (log.topic, log.partition): host.disk.high_watermarks[key]
            for key, log in host.disk.logs.items()
            if key in host.disk.high_watermarks
        }

    def cordon(self, entries: Collection[str]) -> None:
        self.is_cordoned = bool({SimDirectory.path, EVERY_DIRECTORY}.intersection(entries))

    def home(self, _: AnyLog) -> SimDirectory:
        return self._directory

    def high_watermark(self, topic: str, partition: int) -> int:
        return self.high_watermarks.get((topic, partition), 0)

    def create_log(
        self, topic: str, partition: int, topic_id: bytes, config: Any, *, now_ms: int
    ) -> AnyLog:
        for log in self._disk.logs.values():
            if (log.topic, log.partition) == (topic, partition):
                raise AssertionError(f"{self._host.name} has a log of {topic}-{partition} already")
        return self._host.make_log((topic_id, partition), topic, config)

    def delete_log(self, log: AnyLog, *, now_ms: int) -> None:
        key = self._take_out(log)
        self._host.world.checker.topics.on_data_deleted(self._host, key)
        self._disk.deleted.append(log)

    def set_aside(self, log: AnyLog) -> None:
        key = self._take_out(log)
        self._host.world.checker.topics.on_data_set_aside(self._host, key, log)

    def _take_out(self, log: AnyLog) -> tuple[bytes, int]:
        # A power cut may have removed the file with its topic id.
        keys = [key for key, known in self._disk.logs.items() if known is log]
        if not keys:
            raise AssertionError(f"{self._host.name} has another log of {log.topic}")
        key = keys[0]
        del self._disk.logs[key]
        self._disk.high_watermarks.pop(key, None)
        if isinstance(log, DiskLog):
            log.close()
        self.high_watermarks.pop((log.topic, log.partition), None)
        return key
