"""What a record that three replicas acknowledge costs, counted instead of timed."""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

from live_broker import batch
from replica_cluster import ReplicaCluster

from fairlead_wire.header import encode_request_frame
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PRODUCE_VERSION = 9
DEADLINE_S = 60.0
ROUNDS = 20
RECORDS_A_ROUND = 10
CALLS_A_RECORD_MAX = 640
# How often these are called depends on how many turns the loop makes, and so on the machine.
OF_THE_LOOP = (f"{os.sep}asyncio{os.sep}", f"{os.sep}selectors.py")


class Producer:
    """Sends one record after the other on the loop that the brokers run on."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._on_reply)
        self._left = 0
        self._acknowledged = asyncio.Event()

    async def produce(self, count: int) -> None:
        self._left = count
        self._acknowledged.clear()
        self._send()
        async with asyncio.timeout(DEADLINE_S):
            await self._acknowledged.wait()

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _send(self) -> None:
        data = PartitionProduceData(index=0, records=memoryview(bytearray(batch(b"x" * 100))))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        segments = encode_request_frame(ProduceRequest.API_KEY, PRODUCE_VERSION, 1, "test", request)
        self._socket.sendall(b"".join(segments))  # type: ignore[arg-type]

    def _on_reply(self) -> None:
        assert self._socket.recv(4096)
        self._left -= 1
        if self._left:
            self._send()
        else:
            self._acknowledged.set()


def test_a_replicated_record_takes_a_bounded_number_of_calls(tmp_path: Path) -> None:
    """Of Python functions, in three brokers and this producer, from the record to its reply."""
    calls = 0

    def count(frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        if event == "call":
            file = frame.f_code.co_filename
            calls += not any(part in file for part in OF_THE_LOOP)

    async def story() -> None:
        nonlocal calls
        async with ReplicaCluster(tmp_path) as cluster:
            cluster.create("t", min_insync_replicas=2)
            leader = cluster.partition(1, "t")
            producer = Producer(cluster.members[1].server.listeners[0].port)
            rounds = []
            for _ in range(ROUNDS):
                calls = 0
                sys.setprofile(count)
                try:
                    await producer.produce(RECORDS_A_ROUND)
                finally:
                    sys.setprofile(None)
                rounds.append(calls / RECORDS_A_ROUND)
            producer.close()
            assert leader.high_watermark == ROUNDS * RECORDS_A_ROUND
            # Timers and the flusher run now and then, too; not in each round.
            assert min(rounds) <= CALLS_A_RECORD_MAX

    asyncio.run(story())
