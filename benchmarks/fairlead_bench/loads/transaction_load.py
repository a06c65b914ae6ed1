"""Transactions by librdkafka at a fixed rate, with a commit after each interval.

`transactions` only produces, and reports the times of commits. `transform` copies a topic, with
offsets in the transaction. It reports for each record the time from when it was *due* in the source
until a read_committed consumer had its copy.
"""

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from fairlead_bench.loads.load_process import serve_load
from fairlead_bench.loads.rdkafka_load import CONNECT_TIMEOUT_S, QUEUE_SETTINGS, DeliveryErrors

TRANSACTION_TIMEOUT_S = 30.0
TICK_S = 0.001
STAMP_BYTES = 8
READ_BATCH = 2_000
POLL_S = 0.005


def build_transactional_producer(arguments: dict[str, Any]) -> Producer:
    """Return a producer that has done its first transaction, with all its look-ups."""
    producer = Producer(
        {
            "bootstrap.servers": arguments["bootstrap"],
            "transactional.id": f"bench-{time.monotonic_ns()}",
            "linger.ms": 0,
            "delivery.report.only.error": True,
            **QUEUE_SETTINGS,
        }
    )
    producer.init_transactions(TRANSACTION_TIMEOUT_S)
    return producer


class Pace:
    """Computes how many records are due by now, at a fixed rate."""

    def __init__(self, rate: int) -> None:
        self._rate, self.started_ns = rate, time.perf_counter_ns()

    def due(self) -> int:
        return (time.perf_counter_ns() - self.started_ns) * self._rate // 1_000_000_000

    def due_ns(self, number: int) -> int:
        return self.started_ns + number * 1_000_000_000 // self._rate


def percentiles(values_ns: list[int]) -> dict[str, float]:
    values_ns.sort()
    last = len(values_ns) - 1
    return {
        name: values_ns[min(int(len(values_ns) * share), last)] / 1e6
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
    }


def transactions(arguments: dict[str, Any]) -> None:
    rate, interval_ms = arguments["rate"], arguments["interval_ms"]
    topic, value = arguments["topic"], b"x" * arguments["size"]
    total_count = rate * arguments["duration_s"]
    errors = DeliveryErrors()
    producer = build_transactional_producer(arguments)
    producer.begin_transaction()
    producer.produce(topic, value, on_delivery=errors)
    producer.commit_transaction(TRANSACTION_TIMEOUT_S)

    def work() -> dict[str, Any]:
        commits_ns: list[int] = []
        sent_count = 0
        pace = Pace(rate)
        while sent_count < total_count:
            producer.begin_transaction()
            deadline = time.perf_counter() + interval_ms / 1000
            while True:
                due_count = min(pace.due(), total_count)
                while sent_count < due_count:
                    producer.produce(topic, value, on_delivery=errors)
                    sent_count += 1
                if time.perf_counter() >= deadline:
                    break
                producer.poll(0)
                time.sleep(TICK_S)
            began_ns = time.perf_counter_ns()
            producer.commit_transaction(TRANSACTION_TIMEOUT_S)
            commits_ns.append(time.perf_counter_ns() - began_ns)
        if errors.count:
            raise RuntimeError(f"{errors.count} records failed: {errors.first}")
        return {
            "records": sent_count,
            "bytes": sent_count * len(value),
            "transactions": len(commits_ns),
            **percentiles(commits_ns),
        }

    serve_load(work)


def transform(arguments: dict[str, Any]) -> None:
    rate, interval_ms = arguments["rate"], arguments["interval_ms"]
    source, target = arguments["topic"], arguments["target"]
    padding = b"x" * (arguments["size"] - STAMP_BYTES)
    total_count = rate * arguments["duration_s"]
    errors = DeliveryErrors()
    feeder = Producer(
        {"bootstrap.servers": arguments["bootstrap"], "acks": "all", **QUEUE_SETTINGS}
    )
    copier = build_transactional_producer(arguments)
    reading = {
        "bootstrap.servers": arguments["bootstrap"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 100,
    }
    group = f"bench-{time.monotonic_ns()}"
    consumer = Consumer(reading | {"group.id": group})
    partitions = [TopicPartition(source, index, 0) for index in range(arguments["partitions"])]
    consumer.assign(partitions)
    reader = Consumer(reading | {"group.id": f"{group}-reader"})
    reader.assign([TopicPartition(target, each.partition, 0) for each in partitions])
    for client in (consumer, reader):
        client.list_topics(source, timeout=CONNECT_TIMEOUT_S)

    def work() -> dict[str, Any]:
        pace = Pace(rate)
        latencies_ns: list[int] = []

        def feed() -> None:
            sent_count = 0
            while sent_count < total_count:
                due_count = min(pace.due(), total_count)
                while sent_count < due_count:
                    stamp = pace.due_ns(sent_count).to_bytes(STAMP_BYTES, "big")
                    feeder.produce(source, stamp + padding, on_delivery=errors)
                    sent_count += 1
                feeder.poll(TICK_S)
            feeder.flush()

        def read() -> None:
            while len(latencies_ns) < total_count:
                batch = reader.consume(READ_BATCH, timeout=POLL_S)
                now_ns = time.perf_counter_ns()
                latencies_ns.extend(
                    now_ns - int.from_bytes(message.value()[:STAMP_BYTES], "big")
                    for message in batch
                )

        threads = [threading.Thread(target=each, daemon=True) for each in (feed, read)]
        for thread in threads:
            thread.start()
        copied_count = commits_count = 0
        while copied_count < total_count:
            copier.begin_transaction()
            deadline = time.perf_counter() + interval_ms / 1000
            while time.perf_counter() < deadline:
                for message in consumer.consume(READ_BATCH, timeout=POLL_S):
                    copier.produce(target, message.value(), on_delivery=errors)
                    copied_count += 1
            copier.send_offsets_to_transaction(
                consumer.position(partitions), consumer.consumer_group_metadata()
            )
            copier.commit_transaction(TRANSACTION_TIMEOUT_S)
            commits_count += 1
        for thread in threads:
            thread.join()
        if errors.count or len(latencies_ns) != total_count:
            raise RuntimeError(f"{len(latencies_ns)} copies, {errors.count} errors: {errors.first}")
        return {
            "records": total_count,
            "bytes": total_count * arguments["size"],
            "transactions": commits_count,
            **percentiles(latencies_ns),
        }

    serve_load(work)
    for client in (consumer, reader):
        client.close()


def main() -> None:
    arguments = json.loads(sys.argv[1])
    {"transactions": transactions, "transform": transform}[arguments["mode"]](arguments)


if __name__ == "__main__":
    main()
