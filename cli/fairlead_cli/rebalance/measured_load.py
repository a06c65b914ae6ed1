"""The data and the load of brokers: DescribeLogDirs, and metrics of a local cluster."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import TYPE_CHECKING, NamedTuple
from urllib.request import urlopen

from fairlead_cli.client.broker_configs import read_config_of
from fairlead_cli.client.survey import (
    ASKED_AT_ONCE,
    ask_every_broker,
    find_brokers,
    newest_version,
)
from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import explain_error
from fairlead_controller.decisions.balance.cluster_facts import DiskUse, Traffic
from fairlead_model.host_address import join_address
from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.answering import Address
    from fairlead_cli.local.cluster_file import ClusterFile, ProcessEntry

LOG_DIRS_VERSION_MAX = 4
DISK_SIZE_SINCE = 4
RATE = "fairlead.reassignment.throttled.rate"
MEASURED_S = 1.0
# Twice the time after which the controller fences a silent broker: any other one tells its metrics.
TIMEOUT_S = 4.0
TRAFFIC = re.compile(
    r'^kafka_server_brokertopicmetrics_(bytesin|bytesout)_total\{topic="([^"]+)"\} (\S+)$',
    re.MULTILINE,
)


def read_disks(admin: AdminClient) -> tuple[dict[int, DiskUse], list[str]]:
    """Return the disk use of every broker, and the brokers without an answer, in words."""
    return ask_every_broker(admin, read_disks_of)


def read_disks_of(at: Address) -> DiskUse:
    """Return the disk use of one broker. CliError if it does not answer, or refuses."""
    api_key = DescribeLogDirsRequest.API_KEY
    version = newest_version(at, api_key, LOG_DIRS_VERSION_MAX) or 1
    request = DescribeLogDirsRequest(topics=None)
    reply = call_broker(at.host, at.port, request, version)
    if reply.error_code:
        raise CliError(f"it does not tell what it holds: {explain_error(reply.error_code)}")
    usable = [each for each in reply.results if not each.error_code]
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for directory in usable
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
    if version < DISK_SIZE_SINCE or any(each.total_bytes < 0 for each in usable) or not usable:
        return DiskUse(None, None, sizes)
    return DiskUse(
        sum(each.total_bytes for each in usable), sum(each.usable_bytes for each in usable), sizes
    )


def read_throttle(admin: AdminClient) -> int | None:
    """Return the lowest rate, in bytes a second, at which a broker sends to added replicas.

    None if brokers have no such setting. A broker that hangs is left out.
    """
    rates = read_config_of(find_brokers(admin), RATE).values()
    return min(map(int, rates), default=None)


def measure_traffic(
    cluster: ClusterFile,
) -> tuple[dict[tuple[int, str], Traffic], list[str]]:
    """Return the traffic by broker and topic, from two readings of the brokers' counters.

    And the brokers that did not give both readings, in words: their traffic is not known.
    """
    alive = [each for each in cluster.brokers if each.id is not None and each.is_alive]
    first = read_counters(alive)
    time.sleep(MEASURED_S)
    second = read_counters([each for each in alive if each.id in first])
    rates: dict[tuple[int, str], list[float]] = {}
    for broker_id, after in second.items():
        before = first[broker_id]
        for (topic, name), value in after.counters.items():
            # A counter that starts again belongs to another process.
            grown = max(0.0, value - before.counters.get((topic, name), value))
            pair = rates.setdefault((broker_id, topic), [0.0, 0.0])
            pair[name == "bytesout"] = grown / (after.at_s - before.at_s)
    untold = [
        f"Bytes in and out of broker {each.id} are not known, and count as 0: it does not tell its "
        "metrics."
        for each in alive
        if each.id not in second
    ]
    return {at: Traffic(*pair) for at, pair in rates.items()}, untold


class CounterReading(NamedTuple):
    """The bytes in and out of one broker, by topic and name, and when it told them."""

    at_s: float
    counters: dict[tuple[str, str], float]


def read_counters(brokers: Sequence[ProcessEntry]) -> dict[int, CounterReading]:
    """Return the counters of the brokers that answer; all are asked at the same time."""
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        told = list(pool.map(_read_counters_of, brokers))
    return {
        broker.id: reading
        for broker, reading in zip(brokers, told, strict=True)
        if broker.id is not None and reading is not None
    }


def _read_counters_of(broker: ProcessEntry) -> CounterReading | None:
    where = join_address(broker.host, broker.http_port)
    try:
        with urlopen(f"http://{where}/metrics", timeout=TIMEOUT_S) as page:
            text = page.read().decode()
    except (OSError, HTTPException):
        return None
    told = {(topic, name): float(value) for name, topic, value in TRAFFIC.findall(text)}
    return CounterReading(time.monotonic(), told)
