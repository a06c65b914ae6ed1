"""Who sends an HTTP request, over which connection: TLS, passwords, tokens, certificates."""

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web
from secure_listener import Certificates, StaticCredentials
from tokens import AUDIENCE, ISSUER, TokenIssuer
from waiting import until

from fairlead_broker.limits import LOGIN_FAILURES_BURST, STRANGERS_PER_IP_MAX
from fairlead_broker.net.logins import Logins
from fairlead_broker.net.peer_log import PeerLog
from fairlead_broker.net.tls_listeners import TlsListeners
from fairlead_broker.rest import server as server_module
from fairlead_broker.rest import tls_door
from fairlead_broker.rest.documents.openapi import build_document
from fairlead_broker.rest.operations import JSON, Answer, Operation
from fairlead_broker.rest.request import RestRequest
from fairlead_broker.rest.server import RestServer
from fairlead_broker.rest.table import OPERATIONS
from fairlead_broker.security.rest_security import read_rest_security
from fairlead_broker.settings import RestAddress
from fairlead_model.configs.config_key import ConfigError
from fairlead_model.configs.config_values import BrokerValues
from fairlead_model.security.scram import ScramMechanism

LISTENER = "fairlead.rest.listener"
METHODS = "fairlead.rest.authentication"


class Reply(NamedTuple):
    status: int
    head: str
    document: Any


class Served:
    """A server, and connections to it."""

    def __init__(self, server: RestServer, port: int, certificates: Certificates) -> None:
        self.server = server
        self.port = port
        self.certificates = certificates
        self.credentials = StaticCredentials(ada="right")

    def context(self, client: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        if client is not None:
            context.load_cert_chain(client)
        return context

    async def ask(
        self, *headers: str, tls: ssl.SSLContext | None = None, path: str = "/try"
    ) -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        try:
            await send(writer, *headers, path=path)
            return await receive(reader)
        finally:
            writer.close()


async def send(writer: asyncio.StreamWriter, *headers: str, path: str = "/try") -> None:
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> Reply:
    async with asyncio.timeout(10):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.lower().partition("content-length: ")[2].split()[0])
        body = await reader.readexactly(length)
    return Reply(int(head.split()[1]), head, json.loads(body))


def basic(user: str, password: str) -> str:
    return f"Authorization: Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


async def tell_principal(request: RestRequest) -> web.StreamResponse:
    return request.answer(request.kafka.principal.name)


async def wait_for_ever(request: RestRequest) -> web.StreamResponse:
    response = await request.open_stream(JSON)
    await request.write(response, b"1")
    await asyncio.sleep(60)
    return response


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    made = Certificates(tmp_path / "certificates")
    made.issue("server")
    return made


@pytest.fixture
def serve(stage: Any, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a story about a server with these settings."""
    answers = {200: Answer("A text.", {"type": "string"}, (JSON,))}
    operations = (
        Operation("try", "GET", "/try", "Try.", tell_principal, answers),
        Operation("wait", "GET", "/wait", "Wait.", wait_for_ever, answers, is_stream=True),
    )
    monkeypatch.setattr(server_module, "OPERATIONS", operations)

    def act(story: Callable[[Served], Awaitable[None]], **settings: str) -> None:
        async def run() -> None:
            async with running(stage.broker, certificates, settings) as served:
                await story(served)

        stage.run(run())

    return act


@asynccontextmanager
async def running(
    broker: Any, certificates: Certificates, settings: dict[str, str]
) -> AsyncIterator[Served]:
    given = {name.replace("_", "."): text for name, text in settings.items()}
    given.setdefault(LISTENER, "https://127.0.0.1:0")
    is_tls = given[LISTENER].startswith("https")
    if is_tls:
        given["ssl.keystore.location"] = str(certificates.directory / "server.pem")
        given["ssl.truststore.location"] = str(certificates.ca)
    security = read_rest_security(BrokerValues(static=given))
    listeners = TlsListeners(security, broker.metrics, poll_s=0.05)
    credentials = StaticCredentials(ada="right")
    logins = Logins(
        asyncio.get_running_loop(),
        {name: each.sasl for name, each in security.items() if each.sasl is not None},
        credentials,
        cluster_secret=b"secret",
        failure_delay_ms=50,
    )
    logins.start()
    listeners.start()
    server = RestServer(
        broker,
        RestAddress("127.0.0.1", 0, "127.0.0.1", 0, (), (), 1_000, is_tls),
        b"secret",
        PeerLog(),
        logins=logins,
        tls=listeners.transports.get("REST"),
    )
    _, port = server.bind()
    await server.start()
    served = Served(server, port, certificates)
    served.credentials = credentials
    try:
        yield served
    finally:
        await server.stop(grace_s=1)
        await listeners.stop()
        await logins.stop()


def test_nobody_is_asked_where_nothing_says_so(serve: Any) -> None:
    async def story(served: Served) -> None:
        reply = await served.ask(basic("ada", "wrong"), tls=served.context())
        assert reply == (200, reply.head, "ANONYMOUS")

    serve(story)


def test_a_password_says_who_asks(serve: Any) -> None:
    async def story(served: Served) -> None:
        tls = served.context()
        assert (await served.ask(basic("ada", "right"), tls=tls)).document == "ada"
        missing = await served.ask(tls=tls)
        assert (missing.status, missing.document["error_code"]) == (401, 40101)
        assert 'WWW-Authenticate: Basic realm="fairlead", charset="UTF-8"' in missing.head
        assert "application/problem+json" in missing.head
        wrong = [
            await served.ask(header, tls=tls)
            for header in (
                basic("ada", "wrong"),
                basic("bob", "right"),
                "Authorization: Basic !",
                "Authorization: Bearer a.b.c",
                "Authorization: Basic " + b64encode(b"ada\0:right").decode(),
            )
        ]
        assert {each.status for each in wrong} == {401}
        # Nobody learns which users there are.
        assert len({json.dumps(each.document) for each in wrong}) == 1
        twice = await served.ask(basic("ada", "right"), basic("ada", "right"), tls=tls)
        assert twice.status == 400

    serve(story, fairlead_rest_authentication="BASIC")


def test_a_changed_password_counts_at_once(serve: Any) -> None:
    async def story(served: Served) -> None:
        tls = served.context()
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=tls)
        await send(writer, basic("ada", "right"))
        assert (await receive(reader)).document == "ada"
        streaming, sender = await asyncio.open_connection("127.0.0.1", served.port, ssl=tls)
        await send(sender, basic("ada", "right"), path="/wait")
        assert await streaming.readuntil(b"\r\n\r\n")
        for mechanism in ScramMechanism:
            served.credentials.set(mechanism, "ada", None)
        # What the old password let in is cut off, and on the same connection it is refused.
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.IncompleteReadError):
                await streaming.readuntil(b"never")
        await send(writer, basic("ada", "right"))
        assert (await receive(reader)).status == 401
        writer.close()
        sender.close()

    serve(story, fairlead_rest_authentication="BASIC")


def test_who_guesses_is_refused_unseen_and_disturbs_nobody_who_is_known(serve: Any) -> None:
    async def story(served: Served) -> None:
        tls = served.context()
        assert (await served.ask(basic("ada", "right"), tls=tls)).status == 200
        guesses = [
            served.ask(basic("ada", f"guess {number}"), tls=tls)
            for number in range(LOGIN_FAILURES_BURST + 30)
        ]
        assert {each.status for each in await asyncio.gather(*guesses)} == {401}
        assert (await served.ask(basic("ada", "right"), tls=tls)).status == 200
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert (await served.ask(basic("ada", "guess"), tls=tls)).status == 401
        assert loop.time() - began_s >= 0.05, "a wrong password is told too soon"

    serve(story, fairlead_rest_authentication="BASIC")


def test_a_token_says_who_asks(serve: Any, tmp_path: Path) -> None:
    issuer = TokenIssuer()

    async def story(served: Served) -> None:
        tls = served.context()
        judge = served.server._authenticator._logins._readers["REST"]  # type: ignore[union-attr]
        await until(lambda: judge.keys)
        token = issuer.sign()
        for _ in range(2):
            reply = await served.ask(f"Authorization: Bearer {token}", tls=tls)
            assert reply.document == "alice"
        for bad in (token[:-4] + "AAAA", issuer.sign(aud="others"), "x", ""):
            refused = await served.ask(f"Authorization: Bearer {bad}", tls=tls)
            assert refused.status == 401, bad
        assert (await served.ask(basic("ada", "right"), tls=tls)).document == "ada"
        assert 'charset="UTF-8", Bearer realm="fairlead"' in refused.head

    serve(
        story,
        fairlead_rest_authentication="BASIC,BEARER",
        sasl_oauthbearer_jwks_endpoint_url=issuer.write(tmp_path / "keys.json"),
        sasl_oauthbearer_expected_issuer=ISSUER,
        sasl_oauthbearer_expected_audience=AUDIENCE,
    )


def test_a_certificate_says_who_asks(serve: Any) -> None:
    async def story(served: Served) -> None:
        client = served.certificates.issue("carol", is_client=True)
        assert (await served.ask(tls=served.context(client))).document == "carol"
        # Who shows more than that is who he says last.
        named = await served.ask(basic("ada", "right"), tls=served.context(client))
        assert named.document == "ada"
        assert (await served.ask(tls=served.context())).status == 401

    serve(
        story,
        fairlead_rest_authentication="BASIC",
        listener_name_rest_ssl_client_auth="requested",
        ssl_principal_mapping_rules="RULE:^CN=([^,]*).*$/$1/",
    )


def test_certificates_change_without_a_restart(serve: Any) -> None:
    async def story(served: Served) -> None:
        old = served.context()
        assert (await served.ask(tls=old)).status == 200
        other = Certificates(served.certificates.directory.parent / "other", "Other CA")
        new = other.issue("server")
        (served.certificates.directory / "server.pem").write_bytes(new.read_bytes())
        trusting = ssl.create_default_context(cafile=str(other.ca))
        async with asyncio.timeout(10):
            while True:
                try:
                    assert (await served.ask(tls=trusting)).status == 200
                    break
                except ssl.SSLCertVerificationError:
                    await asyncio.sleep(0.05)
        with pytest.raises(ssl.SSLCertVerificationError):
            await served.ask(tls=old)

    serve(story)


def test_half_handshakes_end_and_hold_up_nobody(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_door, "STRANGER_S", 2.0)
    monkeypatch.setattr(tls_door, "_SWEEP_S", 0.1)

    async def story(served: Served) -> None:
        waiting = [
            await asyncio.open_connection("127.0.0.1", served.port)
            for _ in range(STRANGERS_PER_IP_MAX + 5)
        ]
        for _, writer in waiting:
            writer.write(b"\x16\x03\x01")
        assert (await served.ask(tls=served.context())).status == 200
        async with asyncio.timeout(20):
            for reader, writer in waiting:
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
                writer.close()

    serve(story)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_and_plain_http_are_refused(serve: Any, version: ssl.TLSVersion) -> None:
    async def story(served: Served) -> None:
        context = served.context()
        with pytest.warns(DeprecationWarning):
            context.minimum_version = context.maximum_version = version
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await served.ask(tls=context)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await served.ask()

    serve(story)


def test_passwords_by_plain_http_only_where_a_setting_says_so(serve: Any) -> None:
    async def story(served: Served) -> None:
        assert (await served.ask(basic("ada", "right"))).document == "ada"
        assert (await served.ask()).status == 401

    settings = {LISTENER: "127.0.0.1:0", METHODS: "BASIC"}
    with pytest.raises(ConfigError, match=r"over\.plaintext"):
        read_rest_security(BrokerValues(static=settings))
    over_plaintext = {"fairlead_rest_authentication_over_plaintext": "true"}
    serve(story, **{LISTENER: "127.0.0.1:0", METHODS: "BASIC"}, **over_plaintext)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({LISTENER: "https://127.0.0.1:0"}, "ssl.keystore.location"),
        ({LISTENER: "ftp://127.0.0.1:0"}, LISTENER),
        ({METHODS: "BASIC"}, METHODS),
        ({LISTENER: "127.0.0.1:0", "listener.name.rest.ssl.client.auth": "required"}, "https://"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        read_rest_security(BrokerValues(static=settings))


def test_the_document_tells_how_clients_say_who_they_are() -> None:
    document = build_document(OPERATIONS, version="1")
    schemes = document["components"]["securitySchemes"]
    told = {name: each.get("scheme", each["type"]) for name, each in schemes.items()}
    assert told == {"basic": "basic", "bearer": "bearer", "certificate": "mutualTLS"}
    # None is an answer, too: a broker may ask nobody.
    assert document["security"] == [{}, {"basic": []}, {"bearer": []}, {"certificate": []}]
    for path in document["paths"].values():
        assert all("401" in operation["responses"] for operation in path.values())
