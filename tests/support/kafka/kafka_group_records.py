"""The records of a real Apache Kafka about groups: writes kafka_group_records.json.

Run it with Java to write the file again:

    PYTHONPATH=benchmarks .venv/bin/python tests/support/kafka/kafka_group_records.py

It starts the Kafka that the benchmarks use, lets kafka-python and confluent-kafka join, commit,
leave and delete, and stores each record of `__consumer_offsets` as hexadecimal.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as Partition

from fairlead_bench.peers.kafka_cluster import KafkaCluster
from fairlead_bench.peers.kafka_distribution import ensure_kafka

GOLDEN: Final = (
    Path(__file__).parents[2] / "unit/broker/group/records/golden/kafka_group_records.json"
)
DEADLINE_S: Final = 60


def use_groups(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic("orders", 2, 1)]).values():
        created.result(DEADLINE_S)
    member = KafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="dynamic",
        client_id="reader",
        enable_auto_commit=False,
    )
    deadline = time.monotonic() + DEADLINE_S
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(timeout_ms=500)
    member.commit({Partition("orders", 0): OffsetAndMetadata(7, "note: ü", 3)})
    member.close(autocommit=False)
    static = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "static",
            "group.instance.id": "instance-1",
            "client.id": "static-reader",
            "enable.auto.commit": False,
        }
    )
    static.subscribe(["orders"])
    deadline = time.monotonic() + DEADLINE_S
    while not static.assignment() and time.monotonic() < deadline:
        static.poll(0.5)
    static.close()
    alone = Consumer({"bootstrap.servers": bootstrap, "group.id": "standalone"})
    alone.commit(offsets=[TopicPartition("orders", 1, 42)], asynchronous=False)
    alone.close()
    for deleted in admin.delete_consumer_groups(["standalone"]).values():
        deleted.result(DEADLINE_S)


def read_records(bootstrap: str) -> list[dict[str, str | int | None]]:
    reader = KafkaConsumer(
        bootstrap_servers=bootstrap, exclude_internal_topics=False, auto_offset_reset="earliest"
    )
    partitions = [
        Partition("__consumer_offsets", index)
        for index in sorted(reader.partitions_for_topic("__consumer_offsets") or ())
    ]
    reader.assign(partitions)
    reader.seek_to_beginning()
    ends = reader.end_offsets(partitions)
    found = []
    deadline = time.monotonic() + DEADLINE_S
    while any(reader.position(p) < ends[p] for p in partitions) and time.monotonic() < deadline:
        for records in reader.poll(timeout_ms=500).values():
            found += [
                {
                    "partition": record.partition,
                    "key": record.key.hex(),
                    "value": None if record.value is None else record.value.hex(),
                }
                for record in records
            ]
    reader.close(autocommit=False)
    return found


def main() -> None:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        KafkaCluster(ensure_kafka(), Path(folder), brokers=1) as kafka,
    ):
        kafka.start()
        use_groups(kafka.bootstrap)
        golden = {"kafka": kafka.version, "records": read_records(kafka.bootstrap)}
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
