"""Load by librdkafka (confluent-kafka), the client behind most non-Java programs.

`produce` sends as fast as the client can, `consume` reads a topic from its beginning. `latency`
sends at a fixed rate, independent of the answers (open loop), and reports the time from the moment
at which each record was *due* until its acknowledgement.
"""

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from fairlead_bench.loads.load_process import serve_load

MESSAGES_A_CALL = 1000
WARM_UP_RECORDS = 200
CONNECT_TIMEOUT_S = 20
QUEUE_SETTINGS = {
    "log_level": 2,  # failures come back as errors of the records
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 1 << 20,
}


class DeliveryErrors:
    """Counts failed records; librdkafka calls it for errors only."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def __call__(self, error: object, message: Message) -> None:
        if error is not None:
            self.count += 1
            self.first = self.first or str(error)


def produce(arguments: dict[str, Any]) -> None:
    errors = DeliveryErrors()
    topic, count, value = arguments["topic"], arguments["count"], b"x" * arguments["size"]
    producer = Producer(
        {
            "bootstrap.servers": arguments["bootstrap"],
            "acks": arguments.get("acks", 1),
            "delivery.report.only.error": True,
            **QUEUE_SETTINGS,
            **arguments.get("settings", {}),
        }
    )
    producer.produce(
        topic, value, on_delivery=errors
    )  # connects to the leader before the clock runs
    if producer.flush(CONNECT_TIMEOUT_S):
        raise RuntimeError("the first record was not acknowledged")
    messages = [{"value": value} for _ in range(MESSAGES_A_CALL)]

    def work() -> dict[str, Any]:
        sent_count = 0
        while sent_count < count:
            chunk = messages[: count - sent_count]
            queued_count = producer.produce_batch(topic, chunk, on_delivery=errors)
            sent_count += queued_count
            if queued_count < len(chunk):
                for message in chunk:
                    message.pop("_error", None)
                producer.poll(0.002)  # the queue is full
        producer.flush()
        if errors.count:
            raise RuntimeError(f"{errors.count} records failed: {errors.first}")
        return {"records": sent_count, "bytes": sent_count * len(value)}

    serve_load(work)


def consume(arguments: dict[str, Any]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": arguments["bootstrap"],
            "group.id": "fairlead-bench",
            "enable.auto.commit": False,
            # Otherwise the client pauses for a second when 100,000 records are in its queue.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 256 * 1024,
            "fetch.queue.backoff.ms": 5,
            **arguments.get("settings", {}),
        }
    )
    topic, count = arguments["topic"], arguments["count"]
    partitions = [TopicPartition(topic, index, 0) for index in range(arguments["partitions"])]
    consumer.list_topics(topic, timeout=10)  # connects before the clock runs

    def work() -> dict[str, Any]:
        records_count = bytes_count = 0
        for pass_number in range(1, arguments["passes"] + 1):
            consumer.assign(partitions)
            while records_count < count * pass_number:
                batch = consumer.consume(10_000, timeout=1.0)
                if not batch:
                    continue
                if batch[0].error() is not None:
                    raise RuntimeError(str(batch[0].error()))
                records_count += len(batch)
                bytes_count += len(batch[0].value()) * len(batch)  # all are of one size
        return {"records": records_count, "bytes": bytes_count}

    serve_load(work)
    consumer.close()


def latency(arguments: dict[str, Any]) -> None:
    rate, seconds, value = arguments["rate"], arguments["duration_s"], b"x" * arguments["size"]
    topic = arguments["topic"]
    producer = Producer(
        {
            "bootstrap.servers": arguments["bootstrap"],
            "acks": arguments.get("acks", 1),
            "linger.ms": 0,
            "max.in.flight.requests.per.connection": 5,
            "socket.nagle.disable": True,
        }
    )
    for _ in range(WARM_UP_RECORDS):
        producer.produce(topic, value)
        if producer.flush(CONNECT_TIMEOUT_S):
            raise RuntimeError("a warm-up record was not acknowledged")

    def work() -> dict[str, Any]:
        total_count = rate * seconds
        latencies_ns: list[int] = []
        failures: list[str] = []
        is_done = threading.Event()

        def deliver() -> None:
            while not is_done.is_set():
                producer.poll(0.1)

        poller = threading.Thread(target=deliver)
        poller.start()
        started_ns = time.perf_counter_ns()
        for index in range(total_count):
            due_ns = started_ns + index * 1_000_000_000 // rate
            wait_ns = due_ns - time.perf_counter_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / 1e9)

            def acknowledged(error: object, message: Message, due_ns: int = due_ns) -> None:
                latencies_ns.append(time.perf_counter_ns() - due_ns)
                if error is not None:
                    failures.append(str(error))

            producer.produce(topic, value, on_delivery=acknowledged)
        producer.flush()
        is_done.set()
        poller.join()
        if failures or len(latencies_ns) != total_count:
            raise RuntimeError(f"{len(latencies_ns)} answers, errors: {failures[:3]}")
        latencies_ns.sort()
        return {
            "records": total_count,
            **{
                name: latencies_ns[min(int(total_count * share), total_count - 1)] / 1e6
                for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
            },
        }

    serve_load(work)


def main() -> None:
    arguments = json.loads(sys.argv[1])
    {"produce": produce, "consume": consume, "latency": latency}[arguments["mode"]](arguments)


if __name__ == "__main__":
    main()
