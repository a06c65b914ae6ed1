"""A proxy before an API server that causes the faults of networks and servers.

Each fault applies to one request that matches it; other requests pass. A request that a fault holds
back may be carried out later, long after the client's time-out.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from fairlead_bench.peers.own_ports import take_ports

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_kube.credentials import Credentials

Matcher = "Callable[[web.Request], bool]"


def is_write(request: web.Request) -> bool:
    """Whether a request changes something."""
    return request.method != "GET"


def is_read(request: web.Request) -> bool:
    """Whether a request reads and ends."""
    return request.method == "GET" and not is_watch(request)


def is_watch(request: web.Request) -> bool:
    """Whether a request watches."""
    return "watch" in request.query


@dataclass(slots=True)
class Fault:
    """The fault of one request; by default it is neither answered nor carried out."""

    matches: Callable[[web.Request], bool] = is_write
    status: int = 0
    """Answer this without carrying the request out, unless it `lands`."""
    reason: str = ""
    retry_after_s: float | None = None
    is_cut: bool = False
    """Close the connection instead of leaving the client to wait."""
    lands: bool = False
    """Carry the request out at once."""
    lands_late: asyncio.Event | None = None
    """Carry it out when this is set."""
    bytes_passed: int | None = None
    """Of a watch's answer: pass this many bytes, then cut or fall silent."""
    event: bytes = b""
    """Of a watch: answer with this text."""
    happened: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has met the fault and, if it lands, has been carried out."""


class FaultProxy:
    """Listens on a port of its own, http only; the API server may speak https."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._released = asyncio.Event()
        self._late: set[asyncio.Task[None]] = set()
        (self.port,) = take_ports(1)
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        """Method and path of every request that arrived."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._credentials.ssl_context or True),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        await self.come_back()

    async def come_back(self) -> None:
        """Listen at the previous port again."""
        application = web.Application(client_max_size=8 << 20)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()

    async def go_away(self) -> None:
        """Refuse connections, and close those that are open."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def stop(self) -> None:
        self._released.set()
        await self.go_away()
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def add(self, fault: Fault) -> Fault:
        """Have the next request that matches meet a fault."""
        self.faults.append(fault)
        return fault

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        body = await request.read()
        fault = next((fault for fault in self.faults if fault.matches(request)), None)
        if fault is not None:
            self.faults.remove(fault)
            if fault.bytes_passed is None:
                return await self._fail(request, body, fault)
        if is_watch(request):
            return await self._pass_watch(request, fault)
        status, content = await self._forward(request, body)
        return web.Response(status=status, body=content, content_type="application/json")

    async def _fail(self, request: web.Request, body: bytes, fault: Fault) -> web.StreamResponse:
        if fault.lands:
            await self._forward(request, body)
        if fault.lands_late is not None:
            task = asyncio.create_task(self._land_late(request, body, fault))
            self._late.add(task)
        else:
            fault.happened.set()
        if fault.event:
            return web.Response(body=fault.event, content_type="application/json")
        if fault.status:
            return _answer(fault)
        if fault.is_cut:
            _cut(request)
        else:
            await self._released.wait()
        return web.Response()

    async def _land_late(self, request: web.Request, body: bytes, fault: Fault) -> None:
        assert fault.lands_late is not None
        await fault.lands_late.wait()
        await self._forward(request, body)
        fault.happened.set()

    async def _forward(self, request: web.Request, body: bytes) -> tuple[int, bytes]:
        async with self._send(request, body) as response:
            return response.status, await response.read()

    def _send(
        self, request: web.Request, body: bytes | None
    ) -> aiohttp.client._RequestContextManager:
        assert self._session is not None
        headers = {
            name: request.headers[name]
            for name in ("Accept", "Content-Type", "User-Agent")
            if name in request.headers
        }
        token = self._credentials.bearer_token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        url = f"{self._credentials.server}{request.path_qs}"
        return self._session.request(request.method, url, data=body or None, headers=headers)

    async def _pass_watch(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        left = None if fault is None else fault.bytes_passed
        async with self._send(request, None) as source:
            response = web.StreamResponse(status=source.status)
            response.content_type = "application/json"
            await response.prepare(request)
            with suppress(ConnectionError):
                async for piece in source.content.iter_any():
                    await response.write(piece if left is None else piece[:left])
                    left = None if left is None else max(0, left - len(piece))
                    if left == 0:
                        break
            if fault is not None and left == 0:
                fault.happened.set()
                if fault.is_cut:
                    _cut(request)
                else:
                    await self._released.wait()
        return response


def _answer(fault: Fault) -> web.Response:
    headers = {}
    if fault.retry_after_s is not None:
        headers["Retry-After"] = str(round(fault.retry_after_s))
    status = {
        "kind": "Status",
        "code": fault.status,
        "reason": fault.reason,
        "message": f"a fault of the test: {fault.status}",
    }
    return web.Response(
        status=fault.status,
        headers=headers,
        text=json.dumps(status),
        content_type="application/json",
    )


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
