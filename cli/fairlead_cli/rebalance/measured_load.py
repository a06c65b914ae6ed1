"""The data and the load of brokers: DescribeLogDirs, and metrics of a local cluster."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

from fairlead_cli.client.broker_configs import read_config_of
from fairlead_cli.client.survey import ask_every_broker, find_brokers, newest_version
from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import explain_error
from fairlead_controller.decisions.balance.cluster_facts import DiskUse, Traffic
from fairlead_model.host_address import join_address
from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsRequest

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.answering import Address
    from fairlead_cli.local.cluster_file import ClusterFile

LOG_DIRS_VERSION_MAX = 4
DISK_SIZE_SINCE = 4
RATE = "fairlead.reassignment.throttled.rate"
MEASURED_S = 1.0
TIMEOUT_S = 2.0
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


def measure_traffic(cluster: ClusterFile) -> dict[tuple[int, str], Traffic]:
    """Return the traffic by broker and topic, from two readings of the brokers' counters."""
    first, began = read_counters(cluster), time.monotonic()
    time.sleep(MEASURED_S)
    second, passed_s = read_counters(cluster), time.monotonic() - began
    rates: dict[tuple[int, str], list[float]] = {}
    for (broker_id, topic, name), value in second.items():
        # A counter that starts again belongs to another process.
        grown = max(0.0, value - first.get((broker_id, topic, name), value))
        pair = rates.setdefault((broker_id, topic), [0.0, 0.0])
        pair[name == "bytesout"] = grown / passed_s
    return {at: Traffic(*pair) for at, pair in rates.items()}


def read_counters(cluster: ClusterFile) -> dict[tuple[int, str, str], float]:
    """Return bytes in and out, by broker, topic and name, of the brokers that answer."""
    counters = {}
    for broker in cluster.brokers:
        if broker.id is None or not broker.is_alive:
            continue
        where = join_address(broker.host, broker.http_port)
        try:
            with urlopen(f"http://{where}/metrics", timeout=TIMEOUT_S) as page:
                text = page.read().decode()
        except (URLError, TimeoutError, ConnectionError):
            continue
        for name, topic, value in TRAFFIC.findall(text):
            counters[broker.id, topic, name] = float(value)
    return counters
