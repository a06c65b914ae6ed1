"""Following: one connection to each leader, asking for all partitions that it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulator import rpc

from fairlead_broker.replication.follower_state import FetchedPartition, FetchPosition, Retry

if TYPE_CHECKING:
    from simulator.broker_process import BrokerProcess
    from simulator.checker import PartitionKey

FETCH_TIMEOUT_S = 1.5
BACKOFF_S = (0.02, 1.0)


class ReplicaFetchers:
    """The fetchers of one broker process, one to a leader."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._fetchers: dict[int, _Fetcher] = {}
        self._is_stopped = False

    def refresh(self) -> None:
        """Partitions have other leaders than before."""
        if not self._broker.is_confirmed or self._is_stopped:
            return
        leaders = {
            partition.leader_id
            for partition in self._broker.partitions.values()
            if partition.follower is not None
        }
        for leader in sorted(leaders):
            fetcher = self._fetchers.get(leader)
            if fetcher is None:
                fetcher = self._fetchers[leader] = _Fetcher(self._broker, leader)
            fetcher.wake()

    def stop(self) -> None:
        self._is_stopped = True
        for fetcher in self._fetchers.values():
            fetcher.stop()


class _Fetcher:
    """Asks one leader, one request at a time."""

    def __init__(self, broker: BrokerProcess, leader: int) -> None:
        self._broker = broker
        self._leader = leader
        host = broker.world.brokers[leader].name
        self._client = rpc.Client(broker.world.network, broker.process, host)
        self._is_busy = False
        self._is_waiting = False
        self._is_stopped = False
        self._failures = 0
        self._not_before_ms: dict[PartitionKey, int] = {}
        self._asked: dict[PartitionKey, FetchPosition] = {}

    def stop(self) -> None:
        self._is_stopped = True
        self._client.drop()

    def wake(self) -> None:
        """There may be something to ask for that the request on its way does not ask for."""
        if self._is_stopped:
            return
        if not self._is_busy:
            self._ask()
        elif self._is_waiting and self._wanted().keys() - self._asked.keys():
            # Another connection, as a new session would: the old answer will be ignored.
            self._is_waiting = False
            self._client.drop()

    def _wanted(self) -> dict[PartitionKey, FetchPosition]:
        now_ms = self._broker.now_ms()
        wanted = {}
        for key, partition in self._broker.partitions.items():
            if partition.leader_id == self._leader and self._not_before_ms.get(key, 0) <= now_ms:
                position = partition.next_fetch()
                if position is not None:
                    wanted[key] = position
        return wanted

    def _ask(self) -> None:
        self._is_busy = self._is_waiting = False
        if self._is_stopped:
            return
        asked = self._wanted()
        if not asked:
            delays = [at - self._broker.now_ms() for at in self._not_before_ms.values()]
            waiting = [delay for delay in delays if delay > 0]
            if waiting:
                self._is_busy = True
                self._broker.process.call_later(min(waiting) / 1000, self._ask)
            return
        self._is_busy = self._is_waiting = True
        self._asked = asked
        body = {
            "replica_id": self._broker.broker_id,
            "broker_epoch": self._broker.session.broker_epoch,
            "partitions": {key: tuple(position) for key, position in asked.items()},
        }
        self._client.call(
            "fetch", body, lambda reply: self._on_reply(asked, reply), timeout_s=FETCH_TIMEOUT_S
        )

    def _on_reply(
        self, asked: dict[PartitionKey, FetchPosition], reply: dict[str, Any] | None
    ) -> None:
        if self._is_stopped:
            return
        self._is_waiting = False
        if reply is None:
            low, high = BACKOFF_S
            delay_s = min(low * 2**self._failures, high)
            self._failures += 1
            self._broker.process.call_later(delay_s, self._ask)
            return
        self._failures = 0
        now_ms = self._broker.now_ms()
        for key, answer in reply["partitions"].items():
            partition = self._broker.partitions.get(key)
            if partition is None:
                continue
            fetched = FetchedPartition(asked[key], *answer)
            action = partition.take(fetched, now_ms=self._broker.wall_clock_ms())
            if isinstance(action, Retry):
                self._not_before_ms[key] = now_ms + action.after_ms
            else:
                self._not_before_ms.pop(key, None)
        self._ask()
