"""Which brokers answer: beside one that hangs, one that is gone, and what is no broker."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_until

from fairlead_cli import status
from fairlead_cli.client import access, answering, broker_configs, connection, survey
from fairlead_cli.client.answering import REPLY_HEAD, REQUEST, Address, find_answering
from fairlead_cli.client.connection import REQUEST_TIMEOUT_S
from fairlead_cli.client.target import resolve_bootstrap
from fairlead_cli.errors import CliError
from fairlead_model.configs.broker_configs import BROKER_DRAIN
from fairlead_wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

KAFKA_REPLY = REPLY_HEAD.pack(10, 1) + bytes(6)


LATE_S = 2.2
"""How long a broker may wait for a processor before it is fenced, and a moment."""


@contextmanager
def listener(reply: bytes | None, *, port: int = 0, delay_s: float = 0.0) -> Iterator[Address]:
    """Answers every connection like this; None takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=serve, args=(server, reply, delay_s), daemon=True)
        if reply is not None:
            thread.start()
        yield Address("127.0.0.1", server.getsockname()[1])
        if reply is not None:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def serve(server: socket.socket, reply: bytes, delay_s: float) -> None:
    """Until the socket is shut."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(len(REQUEST))
            time.sleep(delay_s)
            connection.sendall(reply)


@pytest.fixture
def gone(free_port: int) -> Address:
    return Address("127.0.0.1", free_port)


def test_one_that_hangs_does_not_hold_up_the_others(gone: Address) -> None:
    with ExitStack() as stack:
        hung, well = (stack.enter_context(listener(reply)) for reply in (None, KAFKA_REPLY))
        began = time.monotonic()
        found = find_answering([hung, gone, well], patience_s=60, grace_s=1.0)
        assert time.monotonic() - began < 30
        assert found.answering == (well,)
        assert set(found.reasons) == {hung, gone}
        assert f"{gone}: Connection refused" in found.reason


def test_orders_are_asked_of_all_brokers_and_not_waited_for_where_one_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_configs, "call_broker", lambda *_: described("true"))
    with ExitStack() as stack:
        hung, well = (stack.enter_context(listener(reply)) for reply in (None, KAFKA_REPLY))
        ids = {hung: 0, well: 1}
        began = time.monotonic()
        orders = broker_configs.read_orders_of(ids)
        assert {each: order.drained for each, order in orders.items()} == {0: None, 1: True}
        assert broker_configs.read_config_of(ids, BROKER_DRAIN) == {1: "true"}
        assert time.monotonic() - began < REQUEST_TIMEOUT_S


def described(drain: str) -> DescribeConfigsResponse:
    """What a broker says of itself."""
    config = DescribeConfigsResourceResult(name=BROKER_DRAIN, value=drain)
    return DescribeConfigsResponse(results=[DescribeConfigsResult(configs=[config])])


def test_all_that_answer_within_the_grace_are_found() -> None:
    with ExitStack() as stack:
        brokers = [stack.enter_context(listener(KAFKA_REPLY)) for _ in range(3)]
        found = find_answering(brokers, patience_s=60, grace_s=60)
        assert sorted(found.answering) == sorted(brokers)
        assert found.reasons == {}


def test_a_name_of_several_brokers_needs_one_that_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A headless Service, whose first address is that of a broker that hangs."""
    with ExitStack() as stack:
        hung, well = (stack.enter_context(listener(reply)) for reply in (None, KAFKA_REPLY))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", tuple(at)) for at in (hung, well)]
        service = Address("brokers", 9092)
        known = socket.getaddrinfo

        def look_up(host: str, *rest: Any, **named: Any) -> Any:
            return found if host == service.host else known(host, *rest, **named)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        assert find_answering([service], patience_s=30).answering == (service,)


def test_a_name_that_nobody_knows_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_arguments: object, **_named: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    found = find_answering([Address("nowhere", 9092)], patience_s=30)
    assert found.reason == "nowhere:9092: Name or service not known"


@pytest.mark.parametrize("host", ["broker..example", f"{'a' * 64}.example"])
def test_what_cannot_be_a_name_is_said_at_once(host: str) -> None:
    """Python refuses it with an error of its codec for names, before anybody is asked."""
    began = time.monotonic()
    found = find_answering([Address(host, 9092)], patience_s=60)
    assert time.monotonic() - began < 30
    assert found.reason == f"{host}:9092: it is no name of a host"
    assert connection.address_family(f"{host}:9092") == "v4"


def test_where_all_refuse_nobody_waits(gone: Address) -> None:
    began = time.monotonic()
    assert find_answering([gone], patience_s=60).answering == ()
    assert time.monotonic() - began < 30


def test_a_service_refuses_until_its_first_broker_is_ready(
    gone: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "may_be_a_proxy", lambda host: host == gone.host)
    monkeypatch.setattr(answering, "REFUSED_AGAIN_S", 0.05)
    found = find_answering([gone], patience_s=1.0)
    assert (found.answering, found.reason) == ((), f"{gone}: Connection refused")

    with ExitStack() as stack:
        late = threading.Timer(
            0.3, lambda: stack.enter_context(listener(KAFKA_REPLY, port=gone.port))
        )
        late.start()
        found = find_answering([gone], patience_s=60)
        late.join(10)
        assert (found.answering, found.reasons) == ((gone,), {})


def test_only_another_machine_refuses_in_the_name_of_a_broker() -> None:
    asked = {host: answering.may_be_a_proxy(host) for host in ("127.0.0.1", "::1", "10.96.0.1")}
    assert asked == {"127.0.0.1": False, "::1": False, "10.96.0.1": True}


def test_silence_has_an_end() -> None:
    with listener(None) as hung:
        found = find_answering([hung], patience_s=0.2)
        assert found.answering == ()
        assert "did not answer within" in found.reason


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\x15\x03\x03"])
def test_what_is_no_broker_is_said(reply: bytes, tmp_path: Path) -> None:
    with listener(reply) as other, pytest.raises(CliError, match="does not speak Kafka's protocol"):
        resolve_bootstrap(str(other), tmp_path)


def test_a_broker_without_tls_is_said_where_the_settings_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(access, "_settings", {"security.protocol": "ssl"})
    with listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as broker:
        found = find_answering([broker], patience_s=30)
    assert found.reason == (
        f"{broker} does not speak TLS there, as security.protocol of the client's settings has it"
    )


def test_clients_get_the_addresses_that_answer(gone: Address, tmp_path: Path) -> None:
    with listener(KAFKA_REPLY) as well:
        assert resolve_bootstrap(f"{gone},{well}", tmp_path) == str(well)


def test_status_of_an_address_asks_every_broker_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata goes on naming a broker that hangs, so that it is no proof of life."""
    monkeypatch.setattr(status, "BROKER_PATIENCE_S", 2.0)
    with ExitStack() as stack:
        hung, well = (stack.enter_context(listener(reply)) for reply in (None, KAFKA_REPLY))
        assert states_of(monkeypatch, hung, well) == ["no answer", "running"]


def test_a_broker_that_gets_no_processor_for_seconds_is_still_said_to_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A busy machine may keep this process waiting even longer, but not each time.
    with listener(KAFKA_REPLY, delay_s=LATE_S) as late, listener(KAFKA_REPLY) as well:
        wait_until(lambda: states_of(monkeypatch, late, well) == ["running", "running"])


def states_of(monkeypatch: pytest.MonkeyPatch, *brokers: Address) -> list[str]:
    """The states in the status of a cluster of these brokers, of which the last one is asked."""
    known = {
        number: SimpleNamespace(id=number, host=at.host, port=at.port)
        for number, at in enumerate(brokers)
    }
    metadata = SimpleNamespace(brokers=known, topics={})
    monkeypatch.setattr(broker_configs, "call_broker", lambda *_: described("false"))
    monkeypatch.setattr(connection, "build_admin", lambda address: address)
    monkeypatch.setattr(connection, "fetch_metadata", lambda _admin: metadata)
    return [each["state"] for each in status.describe_remote(str(brokers[-1]))["brokers"]]


def test_a_broker_that_gets_no_processor_for_seconds_is_still_asked_for_its_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listener(KAFKA_REPLY, delay_s=LATE_S) as late, listener(KAFKA_REPLY) as well:

        def is_whole() -> bool:
            monkeypatch.setattr(survey, "_silent", set())
            asked = survey.ask_brokers({late: 0, well: 1}, lambda number, _at: number)
            return asked == ({0: 0, 1: 1}, [])

        wait_until(is_whole)


def test_a_broker_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that asks several questions takes the whole time for one of them only."""
    monkeypatch.setattr(survey, "_silent", set())
    with listener(None) as hung, listener(KAFKA_REPLY) as well:
        ids = {hung: 0, well: 1}
        for grace_s in (0.2, 60.0):
            monkeypatch.setattr(survey, "GRACE_S", grace_s)
            began = time.monotonic()
            answers, untold = survey.ask_brokers(ids, lambda number, _at: number)
            assert time.monotonic() - began < 30
            assert answers == {1: 1}
            assert untold == [f"broker 0 at {hung} does not answer"]
