"""The log directory of a simulated broker, as `LocalReplicas` uses it: logs by name, on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulator.memory_log import CONFIG

if TYPE_CHECKING:
    from simulator.broker_host import BrokerHost
    from simulator.memory_log import MemoryLog


class SimSettings:
    """As much of a broker's settings as its replicas need."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id

    def log_config(self, _: Any) -> Any:
        return CONFIG


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
    ) -> MemoryLog:
        for log in self._disk.logs.values():
            if (log.topic, log.partition) == (topic, partition):
                raise AssertionError(f"{self._host.name} has a log of {topic}-{partition} already")
        return self._host.make_log((topic_id, partition), topic)

    def delete_log(self, log: MemoryLog, *, now_ms: int) -> None:
        key = self._take_out(log)
        self._host.world.checker.topics.on_data_deleted(self._host, key)
        self._disk.deleted.append(log)

    def set_aside(self, log: MemoryLog) -> None:
        key = self._take_out(log)
        self._host.world.checker.topics.on_data_set_aside(self._host, key, log)

    def _take_out(self, log: MemoryLog) -> tuple[bytes, int]:
        key = (log.topic_id, log.partition)
        if self._disk.logs.pop(key) is not log:
            raise AssertionError(f"{self._host.name} has another log of {key}")
        self._disk.high_watermarks.pop(key, None)
        self.high_watermarks.pop((log.topic, log.partition), None)
        return key
