"""`fairlead broker fence` and `unfence` on a real cluster."""

import json
import os
import signal
from typing import Any
from urllib.request import urlopen

from local_cluster import Cli
from waiting import wait_until


def partitions(cli: Cli) -> list[dict[str, Any]]:
    (described,) = cli.ok("topic", "describe", "t", "-o", "json").json
    return list(described["partitions"])


def decided(cli: Cli) -> list[dict[str, Any]]:
    """The same from the controller itself: brokers hear of what it decides in their own time."""
    port = cli.status()["controller"]["httpPort"]
    with urlopen(f"http://127.0.0.1:{port}/status/topics/t") as reply:
        return list(json.load(reply)["partitionList"])


def test_a_fenced_broker_is_out_of_service_until_it_is_unfenced(cli: Cli) -> None:
    assert cli.up().code == 0
    two = ("--replication-factor", "3", "--config", "min.insync.replicas=2")
    cli.ok("topic", "create", "t", "--partitions", "3", *two)
    cli.ok("produce", "t", stdin="".join(f"{number}\n" for number in range(100)))
    for verb in ("fence", "unfence", "drain", "undrain", "restart"):
        unknown = cli("broker", verb, "9")
        assert (unknown.code, "there is no broker" in unknown.err) == (2, True), unknown
    fenced = cli.ok("broker", "fence", "1", "--reason", "its disk is odd", "-o", "json").json
    assert fenced == {"id": 1, "fencedBy": "its disk is odd"}

    def is_out(rows: list[dict[str, Any]]) -> bool:
        return all(row["leader"] != 1 and sorted(row["isr"]) == [0, 2] for row in rows)

    assert is_out(decided(cli)), "the answer comes after the decision"
    wait_until(lambda: is_out(partitions(cli)))
    wait_until(lambda: cli.status()["brokers"][1]["fencedBy"] == "its disk is odd")
    assert "broker 1: fenced by order (its disk is odd)" in cli.ok("status").out
    remote = cli.ok("status", "--bootstrap", f"127.0.0.1:{cli.port}").out
    assert "broker 1: fenced by order (its disk is odd)" in remote
    refused = cli("broker", "fence", "2")
    assert refused.code == 1
    assert "t-0 would have 1 in sync, and needs 2 (min.insync.replicas)" in refused.err
    # Neither another start of the broker nor another controller lets it back.
    cli.ok("broker", "kill", "1", "--no-wait")
    before = cli.status()["controller"]["pid"]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: cli.status()["controller"]["pid"] not in (None, before))
    cli.ok("produce", "t", stdin="".join(f"{number}\n" for number in range(100)))
    log = cli.data / "logs" / "broker-1.log"
    wait_until(lambda: "fenced by order: its disk is odd" in log.read_text())
    assert is_out(partitions(cli))
    out = cli.ok("broker", "unfence", "1").out
    assert out == "Broker 1 may be in service again, as soon as it is ready.\n"
    wait_until(lambda: all(sorted(row["isr"]) == [0, 1, 2] for row in partitions(cli)))
    wait_until(lambda: cli.status()["brokers"][1]["fencedBy"] is None)
