"""`topic`, `produce`, `consume` and `log dump` against a real cluster."""

import json
import os
import pty
import signal
import struct
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from local_cluster import Cli
from waiting import wait_until

from fairlead_cli.client.wire_call import call_broker
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fairlead_wire.murmur2 import partition_for_key
from fairlead_wire.record_batch import batch_crc
from fairlead_wire.records import Record, encode_batch

CRC_POSITION = 17


def create(cluster: Cli, name: str, partitions: int = 1, *options: str) -> str:
    cluster.ok("topic", "create", name, "--partitions", str(partitions), *options)
    return name


def test_a_topic_is_created_altered_described_and_deleted(cluster: Cli) -> None:
    create(cluster, "life", 2, "--config", "retention.ms=1000000")
    names = [topic["name"] for topic in cluster.ok("topic", "list", "-o", "json").json]
    assert "life" in names
    cluster.ok(
        *("topic", "alter", "life", "--partitions", "4"),
        *("--config", "max.message.bytes=2000000", "--delete-config", "retention.ms"),
    )
    endless = cluster("topic", "describe", "x" * 600)
    assert endless.code == 1
    assert "no topic with a name of 600 characters: at most 249 fit" in endless.err
    mistyped = cluster("topic", "alter", "life", "--delete-config", "max.mesage.bytes")
    assert (mistyped.code, mistyped.out) == (1, "")
    assert "topics have no setting max.mesage.bytes" in mistyped.err
    both = ("--config", "retention.ms=1", "--delete-config", "retention.ms")
    assert cluster("topic", "alter", "life", *both).code == 2
    shrunk = cluster("topic", "alter", "life", "--partitions", "2")
    assert (shrunk.code, "can only grow" in shrunk.err) == (1, True)
    (topic,) = cluster.ok("topic", "describe", "life", "-o", "json").json
    assert [p["partition"] for p in topic["partitions"]] == [0, 1, 2, 3]
    assert all(p["leader"] in p["isr"] for p in topic["partitions"])
    assert topic["configs"] == {"max.message.bytes": "2000000"}
    (topic,) = cluster.ok("topic", "describe", "life", "--all-configs", "-o", "json").json
    assert topic["configs"]["retention.ms"] == "604800000"
    assert "Deleted topic life." in cluster.ok("topic", "delete", "life").out
    # Whichever broker is asked hears of it in its own time.
    wait_until(lambda: cluster("topic", "describe", "life").code == 1)
    assert "topic 'life' does not exist" in cluster("topic", "describe", "life").err


def delete_in_terminal(cluster: Cli, answer: bytes, *arguments: str) -> tuple[int, str, str]:
    """Exit code and stdout of `topic delete`, and what the terminal has shown."""
    here, terminal = pty.openpty()
    try:
        process = subprocess.Popen(
            cluster.command("topic", "delete", *arguments),
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=terminal,
            text=True,
        )
        os.write(here, answer)
        out, _ = process.communicate(timeout=60)
        shown = os.read(here, 10_000).decode()
    finally:
        os.close(here)
        os.close(terminal)
    return process.returncode, out, shown


def test_a_topic_is_deleted_by_hand_after_a_question(cluster: Cli) -> None:
    create(cluster, "precious", 2)
    code, out, shown = delete_in_terminal(cluster, b"n\n", "precious", "nowhere")
    assert (code, out) == (1, "")
    assert "Delete topic precious (2 partitions) and all records? There is no way back" in shown
    assert "nothing was deleted" in shown
    code, out, _ = delete_in_terminal(cluster, b"\x04", "precious")
    assert (code, out) == (130, "")
    code, out, _ = delete_in_terminal(cluster, b"y\n", "precious")
    assert (code, out) == (0, "Deleted topic precious.\n")
    create(cluster, "cheap")
    code, out, shown = delete_in_terminal(cluster, b"n\n", "cheap", "--yes")
    assert (code, out) == (0, "Deleted topic cheap.\n")
    assert "way back" not in shown
    create(cluster, "scripted")
    assert cluster.ok("topic", "delete", "scripted").out == "Deleted topic scripted.\n"


def test_a_topic_that_a_manifest_declares_is_not_deleted_and_the_way_is_told(cluster: Cli) -> None:
    refused = cluster("topic", "delete", "orders")
    assert refused.code == 1
    assert "'orders': a manifest declares it (POLICY_VIOLATION)\n" in refused.err
    assert "Leave the manifest out at the next `fairlead up`" in refused.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "orders"], "TOPIC_ALREADY_EXISTS"),
        (["create", "a/b"], "may only hold ASCII letters"),
        (["create", "t2", "--config", "retenton.ms=1"], "retention.ms"),
        (["create", "t2", "--config", "retention.ms=soon"], "not a whole number"),
        (["create", "t2", "--replication-factor", "4"], "INVALID_REPLICATION_FACTOR"),
        (["alter", "orders", "--partitions", "9"], "declared by Topic resource 'orders'"),
        (["delete", "orderz"], "Did you mean 'orders'?"),
        (["describe", "orderz"], "Did you mean 'orders'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_refusal_says_why(cluster: Cli, arguments: list[str], message: str) -> None:
    refused = cluster("topic", *arguments)
    assert refused.code == 1
    assert message in refused.err
    assert "Traceback" not in refused.err


def test_if_not_exists_and_if_exists_make_no_fuss(cluster: Cli) -> None:
    assert "exists already" in cluster.ok("topic", "create", "orders", "--if-not-exists").out
    cluster.ok("topic", "delete", "no-such-topic", "--if-exists")


def test_lines_come_back_in_order_with_keys_headers_and_nulls(cluster: Cli) -> None:
    topic = create(cluster, "lines")
    lines = "a=1\nb=\nc=NULL\n"
    options = ("--key-separator", "=", "--null-marker", "NULL", "-H", "source=test")
    produced = cluster.ok("produce", topic, *options, stdin=lines)
    assert "3 records to lines" in produced.err
    assert produced.out == ""
    records = cluster.ok("consume", topic, "--count", "3", "-o", "json").json_lines
    assert [(r["key"], r["value"], r["offset"]) for r in records] == [
        ("a", "1", 0),
        ("b", "", 1),
        ("c", None, 2),
    ]
    assert records[0]["headers"] == [{"name": "source", "value": "test"}]
    assert records[0]["timestampType"] == "CreateTime"


def write_latin_header(cluster: Cli, topic: str) -> None:
    """A record that has a header whose name is not UTF-8, as Kafka and Fairlead take it."""
    now_ms = time.time_ns() // 1_000_000
    records = [
        Record(0, now_ms, b"k", b"poisoned", (("name", b"1"),)),
        Record(1, now_ms, b"k", b"next"),
    ]
    batch = bytearray(encode_batch(records).replace(b"name", b"n\xe4me"))
    struct.pack_into(">I", batch, CRC_POSITION, batch_crc(batch, 0, len(batch)))
    data = PartitionProduceData(index=0, records=bytes(batch))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )

    def is_written() -> bool:
        """Who leads hears of it a moment after others tell of it, and has written nothing then."""
        reply = call_broker("127.0.0.1", cluster.port, request, 9)
        code = reply.responses[0].partition_responses[0].error_code
        assert code in {0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return bool(code == 0)

    wait_until(is_written)


def test_a_header_with_a_name_that_is_no_text_hides_no_record(cluster: Cli) -> None:
    topic = create(cluster, "latin", 1, "--replication-factor", "1")
    elected = cluster.ok("topic", "describe", topic, "-o", "json").json
    leader = elected[0]["partitions"][0]["leader"]
    write_latin_header(replace(cluster, port=cluster.port + leader), topic)
    plain = cluster.ok("consume", topic, "--until-end")
    assert (plain.out, plain.err) == ("poisoned\nnext\n", "")
    shown = cluster.ok("consume", topic, "--until-end", "--headers")
    assert shown.out == "?\tpoisoned\n-\tnext\n"
    assert f"The headers of {topic}:0:0 cannot be shown" in shown.err
    as_json = cluster.ok("consume", topic, "--until-end", "-o", "json").json_lines
    assert [record["headers"] for record in as_json] == [None, []]
    assert cluster.ok("consume", topic, "--until-end", "-o", "raw").out == "poisoned\nnext\n"


def test_bytes_survive_unchanged(cluster: Cli) -> None:
    topic = create(cluster, "bytes")
    content = bytes(value for value in range(256) if value not in b"\r\n")
    cluster.ok("produce", topic, stdin=content + b"\n")
    (record,) = cluster.ok("consume", topic, "--count", "1", "-o", "json").json_lines
    assert "valueBase64" in record
    raw = cluster.command("consume", topic, "--count", "1", "-o", "raw", "--separator", "")
    assert subprocess.run(raw, capture_output=True, timeout=60, check=True).stdout == content


def test_a_key_goes_where_java_clients_send_it(cluster: Cli) -> None:
    topic = create(cluster, "keys", 5)
    keys = [f"key-{number}" for number in range(40)]
    cluster.ok("produce", topic, "--key-separator", ":", stdin="".join(f"{k}:v\n" for k in keys))
    records = cluster.ok("consume", topic, "--count", "40", "-o", "json").json_lines
    for record in records:
        assert record["partition"] == partition_for_key(record["key"].encode(), 5)


@pytest.mark.parametrize(
    ("compression", "acks"),
    [("none", "0"), ("gzip", "1"), ("snappy", "all"), ("lz4", "1"), ("zstd", "0")],
)
def test_every_codec_and_acks_mode_arrives(cluster: Cli, compression: str, acks: str) -> None:
    topic = create(cluster, f"codec-{compression}-{acks}")
    options = ("--compression", compression, "--acks", acks)
    cluster.ok("produce", topic, *options, stdin="x" * 500 + "\n" + "y" * 500 + "\n")
    read = cluster.ok("consume", topic, "--count", "2", "--timeout-ms", "10000").out
    assert read == "x" * 500 + "\n" + "y" * 500 + "\n"


def test_csv_and_json_files_become_keyed_records(cluster: Cli, tmp_path: Path) -> None:
    table = tmp_path / "flights.csv"
    table.write_text("carrier,delay,at\nUA,2,2013-01-01T10:00:00Z\nAA,NA,2013-06-01T10:00:00Z\n")
    topic = create(cluster, "tables", 1, "--config", "retention.ms=-1")
    options = ("--input", "csv", str(table), "--key-field", "carrier", "--timestamp-field", "at")
    cluster.ok("produce", topic, *options, "--numbers", "--null-marker", "NA")
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"carrier": "B6", "delay": 1}\n')
    summary = cluster.ok(
        *("produce", topic, "--input", "jsonl", str(rows), "--key-field", "carrier"),
        *("-o", "json"),
    ).json
    assert (summary["records"], summary["failed"]) == (1, 0)
    records = cluster.ok("consume", topic, "--count", "3", "-o", "json").json_lines
    assert [record["key"] for record in records] == ["UA", "AA", "B6"]
    assert json.loads(records[1]["value"]) == {
        "carrier": "AA",
        "delay": None,
        "at": "2013-06-01T10:00:00Z",
    }
    assert records[0]["timestamp"] == 1_357_034_400_000
    later = cluster.ok("consume", topic, "--from", "2013-02-01T00:00Z", "--count", "1", "--keys")
    assert later.out.startswith("AA\t")


def test_a_wrong_line_stops_the_rest_and_is_named(cluster: Cli, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"a": 1}\n{"a": \n')
    topic = create(cluster, "wrong")
    failed = cluster("produce", topic, "--input", "jsonl", str(rows))
    assert failed.code == 1
    assert f"{rows}, line 2: not JSON" in failed.err
    assert "Stopped early: 1 record written to wrong." in failed.err


def test_offsets_partitions_and_limits_pick_records(cluster: Cli) -> None:
    topic = create(cluster, "picks", 2)
    for partition in ("0", "1"):
        lines = "".join(f"{partition}-{number}\n" for number in range(10))
        cluster.ok("produce", topic, "--partition", partition, stdin=lines)
    part = ("--partition", "1")
    assert cluster.ok("consume", topic, *part, "--from", "8", "--until-end").out == "1-8\n1-9\n"
    assert cluster.ok("consume", topic, *part, "--count", "2").out == "1-0\n1-1\n"
    everything = cluster.ok("consume", topic, "--until-end").out.split()
    assert len(everything) == 20
    assert cluster.ok("consume", topic, "--from", "end", "--timeout-ms", "300").out == ""
    assert cluster.ok("consume", topic, "--from", "1h", "--until-end", "--offsets").out.count("0:")
    # A busy machine may not even bring the twenty in time.
    short = ("consume", topic, "--count", "21", "--timeout-ms", "5000")
    wait_until(lambda: "20 of 21 records" in cluster(*short).err)
    assert cluster(*short).code == 1
    outside = cluster("consume", topic, *part, "--from", "11")
    assert outside.code == 1
    assert "It holds offsets 0 to 9." in outside.err
    assert "no partition 7" in cluster("consume", topic, "--partition", "7").err
    assert "no partition 7" in cluster("produce", topic, "--partition", "7", stdin="x").err


def test_from_end_sees_what_comes_next_and_ctrl_c_ends_it(cluster: Cli) -> None:
    topic = create(cluster, "tail")
    cluster.ok("produce", topic, stdin="old\n")
    process = cluster.spawn("consume", topic, "--from", "end")
    assert process.stdout is not None
    seen: list[str] = []
    # It may take a moment until it has assigned its partitions: write until it has seen one.
    reader = threading.Thread(target=lambda: seen.append(process.stdout.readline()))  # type: ignore[union-attr]
    reader.start()

    def produced() -> bool:
        cluster.ok("produce", topic, "--acks", "1", stdin="new\n")
        return bool(seen)

    wait_until(produced)
    reader.join(timeout=60)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert seen == ["new\n"]
    assert process.returncode == 130


def test_a_record_over_the_limit_is_refused_in_words(cluster: Cli) -> None:
    topic = create(cluster, "large")
    refused = cluster("produce", topic, stdin="x" * 1_100_000 + "\n")
    assert refused.code == 1
    assert "1 record could not be written to 'large'" in refused.err
    assert "max.message.bytes" in refused.err
    assert "(0/s, 0 B)" in refused.err, "what is not written is not counted"
    cluster.ok("topic", "alter", topic, "--config", "max.message.bytes=3000000")
    cluster.ok("produce", topic, stdin="x" * 1_100_000 + "\n")
    assert len(cluster.ok("consume", topic, "--count", "1").out) == 1_100_001


def test_unknown_topics_name_the_nearest(cluster: Cli) -> None:
    for verb in ("produce", "consume"):
        refused = cluster(verb, "greetingz", stdin="x\n")
        assert refused.code == 1
        assert "Did you mean 'greetings'?" in refused.err


def test_bootstrap_reaches_the_cluster_from_anywhere(cluster: Cli) -> None:
    address = f"127.0.0.1:{cluster.port + 1}"
    status = cluster.ok("status", "-o", "json", "--bootstrap", address).json
    assert [broker["id"] for broker in status["brokers"]] == [0, 1, 2]
    assert status["brokers"][0]["pid"] is None


def test_a_segment_is_dumped_and_verified(cluster: Cli) -> None:
    topic = create(cluster, "dumped")
    cluster.ok("produce", topic, "--key-separator", ":", stdin="k:v\nk2:\n")
    folder, *_ = sorted(cluster.data.glob(f"broker-*/{topic}-0"))
    segment = folder / f"{0:020}.log"
    table = cluster.ok("log", "dump", str(segment)).out
    assert "base_offset" in table
    batches = cluster.ok("log", "dump", str(segment), "-o", "json").json_lines
    assert sum(batch["records"] for batch in batches) == 2
    assert all(batch["crc_valid"] for batch in batches)
    records = cluster.ok("log", "dump", str(segment), "--records", "-o", "json").json_lines
    assert [(record["key"], record["value"]) for record in records] == [("k", "v"), ("k2", "")]
    assert cluster.ok("log", "dump", str(folder), "--verify").out == ""
    whole = cluster.ok("log", "dump", str(folder.parent), "--verify")
    assert "Nothing wrong in 0 segments" not in whole.err
    assert "leader epochs" in cluster.ok("log", "dump", str(folder)).out


def test_a_damaged_segment_is_found(cluster: Cli, tmp_path: Path) -> None:
    topic = create(cluster, "damaged")
    cluster.ok("produce", topic, stdin="some text to flip a bit of\n")
    folder, *_ = sorted(cluster.data.glob(f"broker-*/{topic}-0"))
    name = f"{0:020}.log"
    content = bytearray((folder / name).read_bytes())
    content[-3] ^= 1
    (tmp_path / name).write_bytes(content)
    found = cluster("log", "dump", str(tmp_path / name), "--verify")
    assert found.code == 1
    assert "CRC does not match" in found.out
    shown = cluster("log", "dump", str(tmp_path / name))
    assert shown.code == 1
    assert "NO" in shown.out
