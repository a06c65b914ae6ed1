"""A small application that writes at a steady rate and reports the outcome of each record.

`probe` is the drills' own; each other one uses one client library, with its default settings except
acks=all and idempotence. `failover_client.py` reads this output:

    acknowledged PARTITION SEQUENCE HANDED_OVER_NS ACKNOWLEDGED_NS OFFSET
    failed PARTITION SEQUENCE WHY                             an error reached the application
    sent PARTITION COUNT                                      at the end, for each partition

It ends when its standard input does. `benchmarks/java/FailoverLoad.java` is the same in Java.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from fairlead_cli.drill.history import KeyHistory, encode_value
from fairlead_cli.drill.probe import PartitionProbe, ask_producer_id
from fairlead_cli.drill.watch import ClusterWatch
from fairlead_model.host_address import split_address

RECORD_BYTES: Final = 100
FLUSH_TIMEOUT_S: Final = 60
PRODUCER_ID_TIMEOUT_S: Final = 30.0
PROBE_TICK_S: Final = 0.01
NS_PER_S: Final = 1_000_000_000


class Application:
    """The target of the records, the records so far, and when to end."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.name: str = arguments["name"]
        self.topic: str = arguments["topic"]
        self.bootstrap: str = arguments["bootstrap"]
        self.sent_counts = [0] * arguments["partitions"]
        self._interval_ns = NS_PER_S // arguments["rate"]
        self._is_ended = threading.Event()

    @property
    def is_ended(self) -> bool:
        return self._is_ended.is_set()

    def follow_input(self) -> None:
        """From now on, end with the end of standard input."""
        threading.Thread(target=self._follow_input, daemon=True).start()

    def _follow_input(self) -> None:
        sys.stdin.read()
        self._is_ended.set()

    def records(self) -> Iterator[tuple[int, int, int]]:
        """Yield partition, sequence and due time of each record, without end. A late record delays
        those after it: there are no bursts to catch up."""
        due_ns = time.monotonic_ns()
        while True:
            for partition in range(len(self.sent_counts)):
                yield partition, self.sent_counts[partition], due_ns
                self.sent_counts[partition] += 1
                due_ns = max(due_ns + self._interval_ns, time.monotonic_ns())

    def key(self, partition: int) -> str:
        return f"{self.name}-{partition}"

    def value(self, partition: int, sequence: int) -> bytes:
        return encode_value(self.key(partition), sequence, RECORD_BYTES)

    def tell_sent(self) -> None:
        for partition, count in enumerate(self.sent_counts):
            tell(f"sent {partition} {count}")


def tell(line: str) -> None:
    """Print a whole line, from any thread."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Handover(NamedTuple):
    """A record that is given to the client now; its outcome is reported once."""

    partition: int
    sequence: int
    handed_over_ns: int

    def settle(self, error: object, offset: int) -> None:
        if error is None:
            where = f"{self.partition} {self.sequence} {self.handed_over_ns}"
            tell(f"acknowledged {where} {time.monotonic_ns()} {offset}")
        else:
            self.fail(error)

    def fail(self, error: object) -> None:
        tell(f"failed {self.partition} {self.sequence} {error!r}".replace("\n", " "))


def seconds_until(due_ns: int) -> float:
    return max(due_ns - time.monotonic_ns(), 0) / NS_PER_S


def run_librdkafka(application: Application) -> None:
    from confluent_kafka import Producer

    own = {"bootstrap.servers": application.bootstrap, "log_level": 0}
    producer = Producer(own | {"acks": "all", "enable.idempotence": True})
    for partition, sequence, due_ns in application.records():
        while seconds_until(due_ns):
            producer.poll(seconds_until(due_ns))
        if application.is_ended:
            break
        handover = Handover(partition, sequence, time.monotonic_ns())
        producer.produce(
            application.topic,
            application.value(partition, sequence),
            application.key(partition),
            partition=partition,
            on_delivery=lambda error, message, handover=handover: handover.settle(
                error, message.offset()
            ),
        )
    producer.flush(FLUSH_TIMEOUT_S)


def run_kafka_python(application: Application) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    servers = application.bootstrap.split(",")
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
    for partition, sequence, due_ns in application.records():
        time.sleep(seconds_until(due_ns))
        if application.is_ended:
            break
        handover = Handover(partition, sequence, time.monotonic_ns())
        try:
            future = producer.send(
                application.topic,
                application.value(partition, sequence),
                application.key(partition).encode(),
                partition=partition,
            )
        except KafkaError as error:
            handover.fail(error)
            continue
        future.add_callback(lambda sent, handover=handover: handover.settle(None, sent.offset))
        future.add_errback(handover.fail)
    producer.flush(FLUSH_TIMEOUT_S)
    producer.close(timeout=FLUSH_TIMEOUT_S)


async def run_aiokafka(application: Application) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    producer = AIOKafkaProducer(bootstrap_servers=application.bootstrap, enable_idempotence=True)
    await producer.start()
    for partition, sequence, due_ns in application.records():
        await asyncio.sleep(seconds_until(due_ns))
        if application.is_ended:
            break
        handover = Handover(partition, sequence, time.monotonic_ns())
        try:
            future = await producer.send(
                application.topic,
                application.value(partition, sequence),
                application.key(partition).encode(),
                partition=partition,
            )
        except KafkaError as error:
            handover.fail(error)
            continue
        future.add_done_callback(partial(settle_future, handover))
    await asyncio.wait_for(producer.flush(), FLUSH_TIMEOUT_S)
    await producer.stop()


def settle_future(handover: Handover, done: "asyncio.Future[Any]") -> None:
    error = done.exception()
    handover.settle(error, -1 if error is not None else done.result().offset)


async def run_probe(application: Application) -> None:
    """Send one record at a time to each partition; retry every 20 ms, time-out after 250 ms."""
    addresses = [split_address(address) for address in application.bootstrap.split(",")]
    watch = ClusterWatch(application.topic, addresses, is_fast=True)
    await watch.start()
    identity = await ask_producer_id(watch, PRODUCER_ID_TIMEOUT_S)
    probes = [
        PartitionProbe(
            watch, partition, identity, KeyHistory(application.key(partition), partition)
        )
        for partition in range(len(application.sent_counts))
    ]
    tasks = [asyncio.create_task(probe.run()) for probe in probes]
    told_counts = [0] * len(probes)
    while not application.is_ended:
        await asyncio.sleep(PROBE_TICK_S)
        for probe in probes:
            tell_answers(probe, told_counts)
            if probe.fatal is not None:
                raise RuntimeError(probe.fatal)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await watch.stop()
    for probe in probes:
        tell_answers(probe, told_counts)
        application.sent_counts[probe.partition] = probe.history.next_sequence


def tell_answers(probe: PartitionProbe, told_counts: list[int]) -> None:
    """Print new answers. A probe sends one record at a time, so the answers are in order."""
    for answer in probe.answers:
        sequence = told_counts[probe.partition]
        begun_ns, ended_ns = int(answer.begun * NS_PER_S), int(answer.ended * NS_PER_S)
        offset = probe.history.offsets[sequence]
        tell(f"acknowledged {probe.partition} {sequence} {begun_ns} {ended_ns} {offset}")
        told_counts[probe.partition] += 1
    probe.answers.clear()


APPLICATIONS: Final[dict[str, Callable[[Application], None]]] = {
    "probe": lambda application: asyncio.run(run_probe(application)),
    "librdkafka": run_librdkafka,
    "kafka-python": run_kafka_python,
    "aiokafka": lambda application: asyncio.run(run_aiokafka(application)),
}


def main() -> None:
    arguments = json.loads(sys.argv[1])
    application = Application(arguments)
    application.follow_input()
    APPLICATIONS[arguments["name"]](application)
    application.tell_sent()


if __name__ == "__main__":
    main()
