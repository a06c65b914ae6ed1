"""Requests to the API server: connections, time-outs, errors, counters.

Nothing is tried again here, and aiohttp must not either: by default it sends a PUT twice if a kept
connection breaks. After two attempts of a compare-and-swap nobody can tell this client's success
from another writer's. After a failure the kept connections are closed, so that the next request
opens a new one, perhaps to another API server.
"""

import asyncio
import json
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey

from fairlead_kube.credentials import Credentials
from fairlead_kube.errors import (
    TOO_MANY_REQUESTS,
    ApiError,
    ApiUnavailableError,
    build_api_error,
)

JSON: Final = "application/json"

Manifest = dict[str, Any]

CONNECTIONS_KEPT_MAX: Final = 64

_NEVER_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_OUTCOMES: Final = {404: "not_found", 409: "conflict", 410: "gone", TOO_MANY_REQUESTS: "throttled"}


def describe_failure(error: Exception) -> str:
    """Return what went wrong with a connection, in words that help an administrator."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        is_numbered = cause.errno is not None and cause.errno > 0
        words = isinstance(cause, ssl.SSLError | socket.gaierror) or not is_numbered
        why = str(cause.strerror or cause) if words else os.strerror(cause.errno or 0)
        host = f"[{error.host}]" if ":" in (error.host or "") else error.host
        return f"cannot connect to {host}:{error.port}: {why}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class RequestCounters:
    """Counts of requests to the API server, for metrics."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        """(verb, outcome) to number of requests; a watch counts when it begins."""
        self.seconds: dict[str, float] = {}
        """Verb to the time that its requests took; a watch counts until it began."""
        self.failing_since: float | None = None
        """Unix time of the first request without a proper answer since the last proper answer."""

    def note(self, verb: str, outcome: str, seconds: float, *, is_answered: bool | None) -> None:
        """Count a request: answered, unanswered (or an error of the server), or cancelled by us."""
        self.requests[verb, outcome] += 1
        self.seconds[verb] = self.seconds.get(verb, 0.0) + seconds
        if is_answered:
            self.failing_since = None
        elif is_answered is False and self.failing_since is None:
            self.failing_since = time.time()


class _Connector(aiohttp.TCPConnector):
    """Ends a connection at once if a request or a watch was left before its answer ended.

    aiohttp itself closes a TLS connection with a handshake, and waits up to 30 seconds for the
    server's part of it; the connector's `close` neither knows of that wait nor awaits it.
    """

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        if should_close or protocol.should_close:
            protocol.abort()
        super()._release(key, protocol, should_close=should_close)


class _Pool:
    """Connections that are closed together."""

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        connector = _Connector(limit=0, ssl=credentials.ssl_context or True, keepalive_timeout=60)
        self.session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept-Encoding": "identity"},
        )
        self.session._retry_connection = False
        self.in_flight = 0


class Transport:
    """The connections to one API server; made in a running loop."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        connect_timeout_s: float,
        request_timeout_s: float,
        user_agent: str,
    ) -> None:
        self._credentials = credentials
        self._connect_timeout_s = connect_timeout_s
        self._request_timeout_s = request_timeout_s
        self._user_agent = user_agent
        self._pool = _Pool(credentials, user_agent)
        self._retired: set[_Pool] = set()
        self.counters = RequestCounters()

    async def request(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Manifest:
        """Send a request and return its answer; raise ApiError or ApiUnavailableError otherwise."""
        data = None
        headers = {"Accept": accept}
        if body is not None:
            data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
            headers["Content-Type"] = content_type
        limits = aiohttp.ClientTimeout(
            total=self._request_timeout_s, sock_connect=self._connect_timeout_s
        )
        async with self._exchange(
            verb, method, path, params=params, data=data, headers=headers, limits=limits
        ) as response:
            answer: Manifest = json.loads(await response.read())
        return answer

    @asynccontextmanager
    async def stream(
        self, verb: str, path: str, *, params: Mapping[str, str], silence_timeout_s: float
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """Open an endless answer; close it after `silence_timeout_s` without a byte."""
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=self._connect_timeout_s, sock_read=silence_timeout_s
        )
        async with self._exchange(
            verb, "GET", path, params=params, data=None, headers={"Accept": JSON}, limits=limits
        ) as response:
            yield response.content

    async def close(self) -> None:
        """Close all connections."""
        for pool in (*self._retired, self._pool):
            await pool.session.close()

    @asynccontextmanager
    async def _exchange(
        self,
        verb: str,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None,
        data: bytes | None,
        headers: dict[str, str],
        limits: aiohttp.ClientTimeout,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield its response if it is a success; count how the request ended."""
        token = self._credentials.bearer_token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        started = time.monotonic()
        outcome, is_counted = "cancelled", False
        is_answered: bool | None = None

        def count() -> None:
            nonlocal is_counted
            if not is_counted:
                is_counted = True
                seconds = time.monotonic() - started
                self.counters.note(verb, outcome, seconds, is_answered=is_answered)

        pool = self._pool
        pool.in_flight += 1
        try:
            async with asyncio.timeout(self._request_timeout_s):
                response = await pool.session.request(
                    method,
                    self._credentials.server + path,
                    params=params,
                    data=data,
                    headers=headers,
                    timeout=limits,
                    allow_redirects=False,
                )
                if response.status >= 300:
                    raise build_api_error(response.status, response.headers, await response.read())
            if limits.total is None:
                outcome, is_answered = "ok", True
                count()
            async with response:
                yield response
            outcome, is_answered = "ok", True
        except ApiError as error:
            outcome = _OUTCOMES.get(error.status, "error")
            is_answered = not error.is_passing
            if error.status >= 500:
                self._retire(pool)
            raise
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            is_timeout = isinstance(error, TimeoutError)
            outcome, is_answered = "timeout" if is_timeout else "unreachable", False
            self._retire(pool)
            raise ApiUnavailableError(
                f"{verb} {path}: {'no answer in time' if is_timeout else describe_failure(error)}",
                may_have_landed=not isinstance(error, _NEVER_SENT),
            ) from error
        finally:
            count()
            pool.in_flight -= 1
            if pool in self._retired and not pool.in_flight:
                self._retired.discard(pool)
                await pool.session.close()

    def _retire(self, pool: _Pool) -> None:
        """Let later requests use new connections; requests under way keep theirs until they end."""
        if pool is self._pool:
            self._retired.add(pool)
            self._pool = _Pool(self._credentials, self._user_agent)
