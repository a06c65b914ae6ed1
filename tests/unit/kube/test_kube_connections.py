"""Connections over TLS end at once, also with an API server that does not say goodbye.

By itself asyncio keeps a connection for up to 30 seconds in wait of the other side's close_notify.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

import aiohttp
import kopf
import pytest
from aiohttp.client_reqrep import ConnectionKey
from kopf._cogs.clients import api, auth
from secure_listener import Certificates

from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.errors import ApiUnavailableError
from fairlead_kube.kinds import POD
from fairlead_kube.transport import describe_failure
from fairlead_operator.__main__ import build_client
from fairlead_operator.kopf_handlers import build_kopf_settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

PATIENCE_S = 10.0
SAID = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
EVENT = json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}}) + "\n"
ANSWER = SAID + b"Content-Length: 2\r\n\r\n{}"
BEGUN_WATCH = SAID + f"Transfer-Encoding: chunked\r\n\r\n{len(EVENT):x}\r\n{EVENT}\r\n".encode()


class MuteServer:
    """Answers one request with some bytes, and then says nothing more, whatever the client does."""

    def __init__(self, context: ssl.SSLContext, answer: bytes, *, late_s: float = 0.0) -> None:
        """With `late_s`, it has no processor for so long when the connection comes."""
        self._late_s = late_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self._context = context
        self._answer = answer
        self.has_request = threading.Event()
        self.is_left = threading.Event()
        """The client has closed its socket."""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"https://localhost:{self._listener.getsockname()[1]}"

    def stop(self) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        plain, _ = self._listener.accept()
        time.sleep(self._late_s)
        with self._context.wrap_socket(plain, server_side=True) as secure:
            secure.recv(65_536)
            secure.sendall(self._answer)
            self.has_request.set()
            # What comes on the wire, close_notify too, is taken without an answer.
            with socket.socket(fileno=secure.detach()) as connection:
                connection.settimeout(PATIENCE_S)
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(65_536):
                        pass
                self.is_left.set()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[bytes], MuteServer]]:
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.issue("server"))
    with contextlib.ExitStack() as servers:

        def make(answer: bytes, *, late_s: float = 0.0) -> MuteServer:
            server = MuteServer(context, answer, late_s=late_s)
            servers.callback(server.stop)
            return server

        yield make


@contextlib.asynccontextmanager
async def connected(
    server: MuteServer, folder: Path, *, request_timeout_s: float = PATIENCE_S
) -> AsyncIterator[KubeClient]:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    client = KubeClient(Credentials(server.url, context), request_timeout_s=request_timeout_s)
    try:
        yield client
    finally:
        await client.close()


async def left(server: MuteServer) -> bool:
    return await asyncio.to_thread(server.is_left.wait, PATIENCE_S / 2)


def test_a_watch_that_is_left_early(serve: Callable[[bytes], MuteServer], tmp_path: Path) -> None:
    async def story() -> None:
        server = serve(BEGUN_WATCH)
        async with connected(server, tmp_path) as client:
            watch = client.watch(POD, "default", resource_version="1")
            async with contextlib.aclosing(watch):
                await anext(watch)
            assert await left(server)

    asyncio.run(story())


def test_the_operator_waits_for_an_api_server_that_is_slow_to_shake_hands(
    serve: Callable[..., MuteServer], tmp_path: Path
) -> None:
    """Writes are not tried again, and reads would begin the next handshake in the same way."""

    async def story() -> None:
        server = serve(ANSWER, late_s=2.0)
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        client = build_client(Credentials(server.url, context))
        try:
            assert await client.create(POD, "default", {"metadata": {"name": "a"}}) == {}
        finally:
            await client.close()

    asyncio.run(story())


def test_kopf_waits_as_long_for_a_handshake(
    serve: Callable[..., MuteServer], tmp_path: Path
) -> None:
    """Otherwise finalizers stay, and deletions wait, while all other work goes on."""

    async def story() -> None:
        server = serve(ANSWER, late_s=2.5)
        info = kopf.ConnectionInfo(server=server.url, ca_path=str(tmp_path / "ca.pem"))
        context = auth.APIContext(info)
        try:
            answer = await api.request(
                "get",
                "/api",
                settings=build_kopf_settings(),
                backoffs=(),
                context=context,
                logger=logging.getLogger(),
            )
            assert await answer.json() == {}
        finally:
            await context.close()

    asyncio.run(story())


def test_a_request_that_is_cancelled(serve: Callable[[bytes], MuteServer], tmp_path: Path) -> None:
    async def story() -> None:
        server = serve(b"")
        async with connected(server, tmp_path) as client:
            request = asyncio.create_task(client.get(POD, "default", "a"))
            assert await asyncio.to_thread(server.has_request.wait, PATIENCE_S)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            assert await left(server)

    asyncio.run(story())


def test_a_request_without_an_answer(serve: Callable[[bytes], MuteServer], tmp_path: Path) -> None:
    async def story() -> None:
        server = serve(b"")
        async with connected(server, tmp_path, request_timeout_s=3.0) as client:
            with pytest.raises(ApiUnavailableError, match="no answer in time"):
                await client.create(POD, "default", {"metadata": {"name": "a"}})
            assert await left(server)

    asyncio.run(story())


def test_a_kept_connection(serve: Callable[[bytes], MuteServer], tmp_path: Path) -> None:
    async def story() -> None:
        server = serve(ANSWER)
        async with connected(server, tmp_path) as client:
            assert await client.get(POD, "default", "a") == {}
            assert not server.is_left.is_set()
        assert await left(server)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('::1', 1)"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), "[SSL: WRONG_VERSION_NUMBER]"),
    ],
)
def test_where_nobody_answers_is_told_without_names_of_python(cause: OSError, words: str) -> None:
    key = ConnectionKey("::1", 6443, True, True, None, None, None)
    error = aiohttp.ClientConnectorError(key, cause)
    assert describe_failure(error) == f"cannot connect to [::1]:6443: {words}"
    assert describe_failure(aiohttp.ServerDisconnectedError()).endswith("Server disconnected")
