"""A cluster of which every address is an IPv6 one: Kafka, TLS, HTTP, sessions and the commands."""

import base64
import json
import ssl
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from local_cluster import PATIENT, Cli, take_cluster_ports
from needed_tools import need_ipv6

from fairlead_cli.local.client_files import read_client_file
from fairlead_cli.local.layout import Layout


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    need_ipv6()
    cli = Cli(tmp_path_factory.mktemp("ipv6"), *take_cluster_ports())
    try:
        outcome = cli.up("--secure", "--host", "::1", "--brokers", "3", *PATIENT)
        assert outcome.code == 0, outcome
        yield cli
    finally:
        cli.close()


def test_librdkafka_reaches_all_brokers_over_tls_by_their_addresses(cli: Cli) -> None:
    layout = Layout(cli.data)
    settings = read_client_file(layout.clients_directory / "admin.librdkafka")
    assert settings["bootstrap.servers"].startswith("[::1]:")
    cli.ok("topic", "create", "t", "--partitions", "3", "--replication-factor", "3")
    # Told bare in Metadata, as Kafka does.
    brokers = AdminClient(dict(settings)).list_topics(timeout=30).brokers.values()
    assert {each.host for each in brokers} == {"::1"}
    assert len(brokers) == 3
    outcomes: list[object] = []
    producer = Producer({**settings, "acks": "all"})
    for partition in range(3):
        producer.produce(
            "t", b"v", partition=partition, on_delivery=lambda error, _: outcomes.append(error)
        )
    assert producer.flush(60) == 0
    assert outcomes == [None] * 3


def test_http_has_addresses_in_brackets(cli: Cli) -> None:
    layout = Layout(cli.data)
    settings = read_client_file(layout.clients_directory / "admin.librdkafka")
    (url, *_) = [each["rest"] for each in json.loads(layout.cluster_file.read_text())["brokers"]]
    assert url.startswith("https://[::1]:")
    login = f"{settings['sasl.username']}:{settings['sasl.password']}"
    request = urllib.request.Request(
        f"{url}/v3/clusters",
        headers={"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"},
    )
    context = ssl.create_default_context(cafile=str(layout.ca_certificate))
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        (cluster,) = json.load(answer)["data"]
    assert cluster["metadata"]["self"].startswith(f"{url}/v3/clusters/")


def test_metrics_and_commands_have_addresses_in_brackets(cli: Cli) -> None:
    status = cli.status()
    assert {each["host"] for each in status["brokers"]} == {"::1"}
    assert {each["state"] for each in status["brokers"]} == {"running"}
    assert f"[::1]:{status['brokers'][0]['port']}" in cli.ok("status").out
    with urllib.request.urlopen(f"http://[::1]:{cli.http_port}/metrics", timeout=30) as page:
        assert b"kafka_" in page.read()


def test_only_one_address_can_be_asked_for(cli: Cli) -> None:
    assert cli("up", "--host", "::").code == 2
    assert cli("up", "--host", "localhost").code == 2
