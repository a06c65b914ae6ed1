"""Apache Kafka's own command-line tools, run as their shell scripts run them."""

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairlead_bench.peers.class_archive import ClassArchive
from fairlead_bench.peers.kafka_distribution import KafkaDistribution

TOOL_TIMEOUT_S: Final = 60
# A tool lives for half a second: it need not compile much, nor collect garbage.
JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
MAIN_CLASSES: Final = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}


class ToolFailedError(Exception):
    """A tool ended with an error; the text is its output."""


@dataclass(frozen=True)
class JavaTools:
    """The tools by the names of their scripts, against one cluster."""

    distribution: KafkaDistribution
    bootstrap: str

    def run(self, tool: str, *arguments: str, stdin: bytes = b"") -> str:
        """Return standard output; ToolFailedError with both streams if the exit code is not 0."""
        process = self.run_unchecked(tool, *arguments, stdin=stdin)
        if process.returncode != 0:
            raise ToolFailedError((process.stdout + process.stderr).decode(errors="replace"))
        return process.stdout.decode(errors="replace")

    def run_unchecked(
        self, tool: str, *arguments: str, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        with ClassArchive(self.distribution, tool).recorded() as options:
            return subprocess.run(
                self._command(options, tool, *arguments),
                input=stdin,
                capture_output=True,
                timeout=TOOL_TIMEOUT_S,
                check=False,
            )

    def command(self, tool: str, *arguments: str) -> list[str]:
        """Return the command of a tool that runs until it is ended."""
        return self._command(ClassArchive(self.distribution, tool).options, tool, *arguments)

    def _command(self, options: tuple[str, ...], tool: str, *arguments: str) -> list[str]:
        command = self.distribution.java_command(
            MAIN_CLASSES[tool], heap_mb=256, options=(*JVM_OPTIONS, *options)
        )
        server = () if tool == "kafka-dump-log" else ("--bootstrap-server", self.bootstrap)
        if tool == "kafka-cluster":  # Its verbs have options of their own.
            return [*command, *arguments, *server]
        return [*command, *server, *arguments]

    def delete_records(self, topic: str, partition: int, before_offset: int) -> str:
        """kafka-delete-records reads what to delete from a JSON file."""
        request = {
            "version": 1,
            "partitions": [{"topic": topic, "partition": partition, "offset": before_offset}],
        }
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "delete.json"
            path.write_text(json.dumps(request))
            return self.run("kafka-delete-records", "--offset-json-file", str(path))
