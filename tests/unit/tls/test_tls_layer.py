"""TLS below a protocol: what comes with the end of a handshake is no part of it."""

import asyncio
import ssl
import threading
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from waiting import until

from fairlead_operator.certificates.authority import issue, make_authority
from fairlead_tls.engine import TlsEngine
from fairlead_tls.handshake_pool import HANDSHAKE_THREADS, HandshakePool
from fairlead_tls.limits import HANDSHAKE_BYTES_MAX, HANDSHAKE_STEP_BYTES, UNASKED_BYTES_MAX
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

    def abort(self) -> None:
        self.is_closed = True

    def get_write_buffer_size(self) -> int:
        return len(self.sent)

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
    with closing(HandshakePool(asyncio.get_running_loop())) as pool:
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
        with closing(HandshakePool(asyncio.get_running_loop())) as pool:
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


def test_a_connection_that_closes_takes_its_step_along(tmp_path: Path) -> None:
    """A flood left the steps of thousands of closed connections waiting before all others."""

    async def run() -> None:
        server, may_go_on, ran = Server(tmp_path), threading.Event(), list[int]()
        layers = []
        with closing(HandshakePool(asyncio.get_running_loop())) as pool:
            for _ in range(HANDSHAKE_THREADS):
                pool.run(may_go_on.wait, lambda _: None)
            for number in range(3):
                client = TlsEngine()
                client.begin_client(ssl.create_default_context(), "localhost")
                client.step_handshake()
                layer = TlsLayer(Above(), server, pool, list[str]().append)
                layer._do_step = partial(ran.append, number)  # type: ignore[method-assign]
                layer.connection_made(Socket())
                layer.data_received(client.outgoing.read())
                layers.append(layer)
            layers[0].connection_lost(None)
            layers[2].connection_lost(ConnectionResetError())
            may_go_on.set()
            await until(lambda: ran)
        assert ran == [1]

    asyncio.run(run())


class NewKeys:
    """Makes the records in which a client of TLS_AES_256_GCM_SHA384 asks for new keys (RFC 8446).

    Python's `ssl` cannot ask for them.
    """

    def __init__(self, key_log: Path) -> None:
        lines = [line.split() for line in key_log.read_text().splitlines()]
        (secret,) = (line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")
        self._secret = bytes.fromhex(secret)

    def ask(self) -> bytes:
        """Return the next KeyUpdate, which wants one back; each record has keys of its own."""
        head = b"\x17\x03\x03" + (5 + 1 + 16).to_bytes(2)
        key, nonce = self._expand(b"key", 32), self._expand(b"iv", 12)
        self._secret = self._expand(b"traffic upd", 48)
        return head + AESGCM(key).encrypt(nonce, b"\x18\0\0\x01\x01" + b"\x16", head)

    def _expand(self, label: bytes, size: int) -> bytes:
        name = b"tls13 " + label
        info = size.to_bytes(2) + len(name).to_bytes(1) + name + b"\0"
        return HKDFExpand(hashes.SHA384(), size, info).derive(self._secret)


async def ask_for_keys(directory: Path, count: int, *, is_taken: bool) -> tuple[Socket, int]:
    """Ask so often, and take the answers or leave them; return what was sent at most, too."""
    server = Server(directory)
    raw, client = Socket(), TlsEngine()
    context = ssl.create_default_context(cafile=str(server.ca))
    context.keylog_filename = str(directory / "keys")
    client.begin_client(context, "localhost")
    unsent_max = 0
    with closing(HandshakePool(asyncio.get_running_loop())) as pool:
        layer = TlsLayer(Above(), server, pool, list[str]().append)
        layer.connection_made(raw)
        while not client.step_handshake():
            layer.data_received(client.outgoing.read())
            await raw.reads()
            client.incoming.write(bytes(raw.sent))
            raw.sent.clear()
        layer.data_received(client.outgoing.read())
        await raw.reads()
        assert client.tls.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
        keys = NewKeys(directory / "keys")
        raw.sent.clear()
        for _ in range(count):
            layer.data_received(keys.ask())
            unsent_max = max(unsent_max, len(raw.sent))
            if is_taken:
                raw.sent.clear()
    return raw, unsent_max


def test_who_asks_for_new_keys_and_takes_none_is_ended(tmp_path: Path) -> None:
    raw, unsent_max = asyncio.run(ask_for_keys(tmp_path, 2000, is_taken=False))
    assert raw.is_closed
    assert UNASKED_BYTES_MAX < unsent_max < 2 * UNASKED_BYTES_MAX


def test_who_takes_new_keys_may_ask_for_any(tmp_path: Path) -> None:
    raw, unsent_max = asyncio.run(ask_for_keys(tmp_path, 2000, is_taken=True))
    assert not raw.is_closed
    assert 0 < unsent_max < 100
