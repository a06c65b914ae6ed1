"""The records of a real Apache Kafka about transactional ids: kafka_transaction_records.json.

Run it with Java to write the file again:

    PYTHONPATH=benchmarks .venv/bin/python tests/support/kafka/kafka_transaction_records.py

It starts the Kafka that the benchmarks use, lets confluent-kafka commit, abort and time out, and
stores each record of `__transaction_state` as hexadecimal, in the order of its log.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from fairlead_bench.peers.kafka_cluster import KafkaCluster
from fairlead_bench.peers.kafka_distribution import ensure_kafka

GOLDEN: Final = (
    Path(__file__).parents[2] / "unit/broker/transaction/golden/kafka_transaction_records.json"
)
DEADLINE_S: Final = 90
TOPIC: Final = "__transaction_state"
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


def use_transactions(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics(
        [NewTopic("orders", 3, 1), NewTopic("customers", 1, 1)]
    ).values():
        created.result(DEADLINE_S)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "shop-ü",
            "transaction.timeout.ms": 5_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for topic, partition in (("orders", 0), ("orders", 2), ("customers", 0)):
        producer.produce(topic, b"value", partition=partition)
    producer.flush(DEADLINE_S)
    producer.commit_transaction(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("orders", b"value", partition=1)
    producer.flush(DEADLINE_S)
    producer.abort_transaction(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("orders", b"value", partition=1)
    producer.flush(DEADLINE_S)
    # Never ended: the coordinator aborts it after its time-out.


def read_records(bootstrap: str) -> list[dict[str, str | None]]:
    """Read up to the end of the transaction that has timed out."""
    reader = KafkaConsumer(
        bootstrap_servers=bootstrap, exclude_internal_topics=False, auto_offset_reset="earliest"
    )
    partition = TopicPartition(TOPIC, 0)
    reader.assign([partition])
    reader.seek_to_beginning()
    found: list[dict[str, str | None]] = []
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for records in reader.poll(timeout_ms=500).values():
            found += [
                {
                    "key": record.key.hex(),
                    "value": None if record.value is None else record.value.hex(),
                }
                for record in records
            ]
        # State 5, CompleteAbort, for the second time: see the value's layout in records.py.
        aborted = [each for each in found if each["value"] and each["value"][32:34] == "05"]
        if len(aborted) == 2:
            break
    reader.close(autocommit=False)
    return found


def main() -> None:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        KafkaCluster(ensure_kafka(), Path(folder), brokers=1, settings=SETTINGS) as kafka,
    ):
        kafka.start()
        use_transactions(kafka.bootstrap)
        golden = {"kafka": kafka.version, "records": read_records(kafka.bootstrap)}
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
