"""Golden bytes: records of KIP-848's groups from Apache Kafka's own serializer.

Run it with Java to write kafka_consumer_group_records.json beside its tests again:

    PYTHONPATH=benchmarks .venv/bin/python tests/support/kafka/kafka_consumer_group_records.py
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

from fairlead_bench.peers.kafka_distribution import ensure_kafka

GOLDEN: Final = (
    Path(__file__).parents[2] / "unit/broker/group/records/golden/kafka_consumer_group_records.json"
)
PROGRAM: Final = Path(__file__).with_name("KafkaConsumerGroupRecords.java")


def main() -> None:
    """Write the file."""
    jars = ensure_kafka().classpath
    command = ["java", "-cp", jars, str(PROGRAM)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    records = dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)
    golden = {name: value.split(",") for name, value in records.items()}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
