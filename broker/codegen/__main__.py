"""`python -m codegen --kafka-clients JAR`: writes the message modules, or checks them.

With `--check` nothing is written: a difference to what is there is printed and the exit code is 1.
"""

import argparse
import difflib
import sys
from pathlib import Path
from typing import Final

from codegen.emit_module import Api, api_module, build_api, index_module
from codegen.own_fields import with_own_fields
from codegen.schema import SchemaError, parse_message, read_definitions

# The requests of clients to brokers, and between brokers. Left out: the controller quorum, share
# and streams groups, delegation tokens, telemetry.
APIS: Final = (
    *("Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch"),
    *("FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup"),
    *("DescribeGroups", "ListGroups", "SaslHandshake", "ApiVersions", "CreateTopics"),
    *("DeleteTopics", "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch"),
    *("AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "WriteTxnMarkers", "TxnOffsetCommit"),
    *("DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeConfigs", "AlterConfigs"),
    *("AlterReplicaLogDirs", "DescribeLogDirs", "SaslAuthenticate", "CreatePartitions"),
    *("DeleteGroups", "ElectLeaders", "IncrementalAlterConfigs"),
    *("AlterPartitionReassignments", "ListPartitionReassignments", "OffsetDelete"),
    *("DescribeClientQuotas", "AlterClientQuotas", "DescribeUserScramCredentials"),
    *("AlterUserScramCredentials", "DescribeQuorum", "DescribeCluster", "DescribeProducers"),
    *("DescribeTransactions", "ListTransactions", "ConsumerGroupHeartbeat"),
    *("ConsumerGroupDescribe", "ListConfigResources", "DescribeTopicPartitions"),
    *("UpdateFeatures", "UnregisterBroker", "Envelope"),
)
DEFAULT_OUTPUT: Final = Path(__file__).parent.parent / "fairlead_wire" / "messages"


def build_sources(jar: Path) -> dict[str, str]:
    """Return the source of each file of the package, by file name."""
    definitions = read_definitions(jar)
    missing = [each for each in APIS if f"{each}Request" not in definitions]
    if missing:
        raise SchemaError(f"{jar} defines no {', '.join(missing)}")
    apis: list[Api] = [
        build_api(
            parse_message(with_own_fields(definitions[f"{name}Request"])),
            parse_message(with_own_fields(definitions[f"{name}Response"])),
        )
        for name in APIS
    ]
    apis.sort(key=lambda each: each.request.api_key)
    sources = {f"{each.module}.py": api_module(each) for each in apis}
    sources["__init__.py"] = index_module(apis)
    return sources


def differences(sources: dict[str, str], folder: Path) -> list[str]:
    """Return unified diffs between the files in the folder and the generated ones."""
    lines: list[str] = []
    present = {path.name: path.read_text() for path in sorted(folder.glob("*.py"))}
    for name in sorted({*present, *sources}):
        lines += difflib.unified_diff(
            present.get(name, "").splitlines(),
            sources.get(name, "").splitlines(),
            f"present/{name}",
            f"generated/{name}",
            lineterm="",
        )
    return lines


def write_sources(sources: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.py"):
        if path.name not in sources:
            path.unlink()
    for name, source in sources.items():
        (folder / name).write_text(source)


def main() -> int:
    parser = argparse.ArgumentParser(prog="codegen", description=__doc__)
    parser.add_argument("--kafka-clients", type=Path, required=True, metavar="JAR")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, metavar="FOLDER")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    sources = build_sources(arguments.kafka_clients)
    if not arguments.check:
        write_sources(sources, arguments.output)
        return 0
    lines = differences(sources, arguments.output)
    print("\n".join(lines[:200]), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
