"""TLS below a protocol: what comes with the end of a handshake is no part of it."""

import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from fairlead_operator.certificates.authority import issue, make_authority
from fairlead_tls.engine import TlsEngine
from fairlead_tls.limits import HANDSHAKE_BYTES_MAX, HANDSHAKE_STEP_BYTES
from fairlead_tls.tls_layer import TlsLayer

BODY = b"x" * (4 * HANDSHAKE_BYTES_MAX)


class Above(asyncio.Protocol):
    """What is spoken over TLS: it keeps what comes."""

    def __init__(self) -> None:
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        self.received += data


class Socket(asyncio.Transport):
    """The transport of a socket whose peer is in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.is_reading_now = True
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    async def reads(self) -> None:
        await until(lambda: self.is_reading_now or self.is_closed)


class Server:
    """The terms of a server that lets everybody in."""

    allows_plaintext = False

    def __init__(self, directory: Path) -> None:
        now = datetime.now(UTC)
        authority = make_authority("Test CA", now)
        pair = issue(authority, "server", now, hosts=("localhost",), is_client=False)
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(authority.certificate)
        file = directory / "server.pem"
        file.write_bytes(pair.certificate + pair.key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(file)

    def open_context(self) -> ssl.SSLContext:
        return self.context

    def identify(self, tls: ssl.SSLObject) -> str:
        return "anybody"


async def speak(server: Server, client: TlsEngine) -> tuple[Socket, Above, list[str]]:
    """Have a client send the end of its handshake and `BODY` in one write."""
    raw, above, refusals = Socket(), Above(), list[str]()
    with ThreadPoolExecutor(1) as pool:
        layer = TlsLayer(above, server, pool, refusals.append)
        layer.connection_made(raw)
        client.begin_client(ssl.create_default_context(cafile=str(server.ca)), "localhost")
        while not client.step_handshake():
            layer.data_received(client.outgoing.read())
            await raw.reads()
            client.incoming.write(bytes(raw.sent))
            raw.sent.clear()
        client.tls.write(BODY)
        layer.data_received(client.outgoing.read())
        await raw.reads()
        return raw, above, refusals


def test_a_request_that_comes_with_the_end_of_the_handshake_is_whole(tmp_path: Path) -> None:
    client = TlsEngine()
    raw, above, refusals = asyncio.run(speak(Server(tmp_path), client))
    assert (refusals, raw.is_closed) == ([], False)
    assert above.received == BODY


@pytest.mark.parametrize("at_once", [HANDSHAKE_STEP_BYTES // 2, 4 * HANDSHAKE_BYTES_MAX])
def test_a_handshake_without_an_end_is_refused(tmp_path: Path, at_once: int) -> None:
    """Whoever refuses it, OpenSSL or the count of bytes, and however much comes at once."""
    server = Server(tmp_path)
    hello = b"\x01\x00\xff\xff" + b"\x03\x03" + b"x" * 65_533
    records = b"".join(
        b"\x16\x03\x01" + len(part).to_bytes(2) + part
        for part in (hello[at : at + 4096] for at in range(0, len(hello), 4096))
    )
    endless = records + b"\x16\x03\x01\x10\x00" * HANDSHAKE_BYTES_MAX

    async def run() -> tuple[Socket, list[str]]:
        raw, refusals = Socket(), list[str]()
        with ThreadPoolExecutor(1) as pool:
            layer = TlsLayer(Above(), server, pool, refusals.append)
            layer.connection_made(raw)
            at = 0
            while not raw.is_closed:
                layer.data_received(endless[at : at + at_once])
                at += at_once
                await raw.reads()
        return raw, refusals

    raw, refusals = asyncio.run(run())
    assert raw.is_closed
    assert len(refusals) == 1
