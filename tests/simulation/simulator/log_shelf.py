"""The log directory of a simulated broker, as `LocalReplicas` uses it: logs by name, on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulator.disk_log import DiskLog
from simulator.memory_log import CONFIG

if TYPE_CHECKING:
    from simulator.broker_host import BrokerHost
    from simulator.disk_log import AnyLog
    from simulator.world import World


class SimSettings:
    """As much of a broker's settings as its replicas need."""

    def __init__(self, node_id: int, world: World) -> None:
        self.node_id = node_id
        self._world = world

    def log_config(self, overrides: Any) -> Any:
        plan = self._world.compaction
        is_keyed = plan is not None and "cleanup.policy" in overrides
        return plan.config if plan is not None and is_keyed else CONFIG


class LogShelf:
    """One process's view of the disk. Names are unique, as names of directories are."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host
        self._disk = host.disk
        self.offline: dict[tuple[str, int], str] = {}
        self.logs = list(host.disk.logs.values())
        self.high_watermarks = {
            (log.topic, log.partition): host.disk.high_watermarks[key]
            for key, log in host.disk.logs.items()
            if key in host.disk.high_watermarks
        }

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
        # A power cut may have taken the file that says which topic it is.
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
