"""Tools outside Python's packages that some tests need: their purpose, and how to get them.

If a tool is missing, its tests are skipped and the run reports that at its start. In CI all tools
must be there: a missing one is an error.
"""

import os
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import pytest

from fairlead_bench.peers import spark_connector, zookeeper_server
from fairlead_bench.peers.kafka_distribution import POM, read_version
from fairlead_bench.project import PROJECT

CACHE = PROJECT / ".cache"


def is_on_the_path(name: str) -> bool:
    return shutil.which(name) is not None


def can_be_fetched() -> bool:
    """Tell whether Maven's downloads are in `.cache` already, or can be made."""
    kafka = CACHE / f"kafka-{read_version(POM)}"
    jars = [
        *(CACHE / "spark-connector" / jar.file_name for jar in spark_connector.JARS),
        *(CACHE / zookeeper_server.FOLDER / jar.file_name for jar in zookeeper_server.JARS),
    ]
    folders = [kafka / name for name in ("libs", "streams", "connect")]
    return is_on_the_path("mvn") or all(each.exists() for each in (*folders, *jars))


@dataclass(frozen=True)
class Tool:
    """A command, and the tests that are skipped without it."""

    name: str
    skips: str
    how_to_get: str
    is_there: Callable[[], bool]


def command(name: str, skips: str, how_to_get: str) -> Tool:
    return Tool(name, skips, how_to_get, lambda: is_on_the_path(name))


TOOLS = {
    tool.name: tool
    for tool in (
        command("kcat", "kcat as a client, and its examples in the docs", "apt-get install kcat"),
        command(
            "java",
            "Kafka's own tools, Spark, and ZooKeeper",
            "apt-get install default-jre-headless",
        ),
        command("javac", "Kafka's log cleaner beside ours", "apt-get install default-jdk-headless"),
        Tool(
            "maven",
            "what is fetched once: Kafka's tools, Streams, Connect, Spark's connector, ZooKeeper",
            "apt-get install maven",
            can_be_fetched,
        ),
        command("helm", "the charts", "https://helm.sh/docs/intro/install"),
        command("curl", "its examples in the docs", "apt-get install curl"),
        command("ip", "hosts as network namespaces", "apt-get install iproute2"),
        command("systemd-analyze", "the units for plain hosts", "apt-get install systemd"),
        command("openssl", "connections over TLS", "apt-get install openssl"),
    )
}


def is_promised(environment: Mapping[str, str] = os.environ) -> bool:
    """Tell whether every tool must be there."""
    return environment.get("CI", "").lower() not in ("", "0", "false")


def missing(reason: str) -> NoReturn:
    """End a test because a tool is missing: skipped for a developer, an error in CI."""
    if is_promised():
        pytest.fail(f"{reason} (CI is set: it must be there)")
    pytest.skip(reason)


def need(name: str) -> None:
    """Skip the test if a tool is missing."""
    tool = TOOLS[name]
    if not tool.is_there():
        missing(f"{name} is not installed: {tool.how_to_get}")


def need_ipv6() -> None:
    """Skip the test if a socket cannot serve both IPv4 and IPv6."""
    if not socket.has_dualstack_ipv6():
        missing("this kernel has no IPv6, so nothing listens at ::1")


def describe_missing() -> list[str]:
    """Return, for the start of a run, what will be skipped and how to change that."""
    absent = [tool for tool in TOOLS.values() if not tool.is_there()]
    if not absent:
        return [f"nothing is skipped for want of a tool: {', '.join(TOOLS)} are there"]
    verb = "FAILS" if is_promised() else "skips"
    return [
        f"{verb} for want of {tool.name}: {tool.skips}. Get it: {tool.how_to_get}"
        for tool in absent
    ]
