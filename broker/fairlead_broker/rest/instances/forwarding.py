"""Requests for an instance that another broker has: they are passed on to its HTTP port.

The name of an instance says which broker that is; where a client has chosen the name, all are asked
in turn. A request is passed on once: the one it comes to answers. It goes only to addresses that
brokers have registered, with the client's own credentials.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp import web
from yarl import URL

from fairlead_broker.limits import (
    REST_DOCUMENT_BYTES_MAX,
    REST_PEER_CONNECTIONS_MAX,
    REST_READ_HOP_MS,
)
from fairlead_broker.rest.instances.instance import unknown_instance
from fairlead_broker.rest.instances.registry import broker_of
from fairlead_broker.rest.json_text import JsonError, load_json
from fairlead_broker.rest.problems import RETRIABLE, RETRY_AFTER, UNKNOWN_INSTANCE, ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.broker import Broker
    from fairlead_broker.rest.request import RestRequest

FORWARDED: Final = "Fairlead-Forwarded-By"
_PASSED_ON: Final = ("Accept", "Accept-Encoding", "Authorization", "Content-Type")
_PASSED_BACK: Final = ("Content-Type", "Content-Encoding", "Vary", "Retry-After", "Cache-Control",
                       "WWW-Authenticate")  # fmt: skip
_CONNECT_TIMEOUT_S: Final = 2.0
_GRACE_S: Final = 2 * REST_READ_HOP_MS / 1000


class UnreachableError(ProblemError):
    """The broker of an instance does not answer: 503."""

    def __init__(self, reason: str) -> None:
        message = f"the broker of this instance cannot be asked: {reason}"
        super().__init__(503, message, code=RETRIABLE, headers=RETRY_AFTER)


class Forwarding:
    """Connections to the HTTP ports of other brokers, made when they are needed."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, request: RestRequest) -> web.StreamResponse:
        """Return what the broker answers that has the instance; ProblemError 404 or 503.

        Each has the time of `request.deadline_s`.
        """
        name = request.path["instance_name"]
        body = None
        if request.operation.body is not None and request.http.body_exists:
            body = await request.body.read(REST_DOCUMENT_BYTES_MAX)
        failure: ProblemError | None = None
        for url in self._candidates(request, name):
            target = url + request.http.rel_url.raw_path_qs
            try:
                response = await self._wait(request, request.http.method, target, body)
            except UnreachableError as error:
                failure = failure or error
                continue
            if not _is_unknown(response):
                return response
        raise failure or unknown_instance(name)

    async def exists_elsewhere(self, request: RestRequest, path: str, name: str) -> bool:
        """Tell whether another broker that can be asked has an instance of this name."""
        for url in self._candidates(request, name):
            try:
                response = await self._wait(request, "HEAD", url + path, None)
            except UnreachableError:
                continue
            if response.status == HTTPStatus.OK:
                return True
        return False

    async def close(self) -> None:
        """Let go of all connections."""
        if self._session is not None:
            await self._session.close()

    def _candidates(self, request: RestRequest, name: str) -> Iterator[str]:
        """Yield the addresses of brokers that may have the instance."""
        if FORWARDED in request.http.headers:
            return
        image = self._broker.image
        holder = broker_of(name)
        for broker_id in sorted(image.brokers) if holder is None else (holder,):
            registration = image.brokers.get(broker_id)
            if broker_id == self._broker.node_id or registration is None or registration.fenced:
                continue
            if registration.rest_url is not None:
                yield registration.rest_url

    async def _wait(
        self, request: RestRequest, method: str, url: str, body: bytes | None
    ) -> web.Response:
        """Pass a request on, within its time; UnreachableError."""
        asked = self._ask(request, method, url, body)
        until_s = request.deadline_s + _GRACE_S
        response = await request.kafka.host.fetches.wait(asked, until_s)
        if response is None:
            raise UnreachableError("it does not answer in time")
        return response

    async def _ask(
        self, request: RestRequest, method: str, url: str, body: bytes | None
    ) -> web.Response:
        given = request.http.headers
        headers = {name: given[name] for name in _PASSED_ON if name in given}
        headers.setdefault("Accept-Encoding", "identity")
        headers[FORWARDED] = str(self._broker.node_id)
        parts: list[bytes] = []
        try:
            async with self._open_session().request(
                method, URL(url, encoded=True), data=body, headers=headers, allow_redirects=False
            ) as answer:
                async for part in answer.content.iter_any():
                    request.hold(len(part))
                    parts.append(part)
        except (aiohttp.ClientError, OSError) as error:
            raise UnreachableError(type(error).__name__) from error
        return web.Response(
            status=answer.status,
            body=b"".join(parts),
            headers={name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers},
        )

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit_per_host=REST_PEER_CONNECTIONS_MAX, limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                skip_auto_headers=("User-Agent", "Content-Type"),
            )
        return self._session


def _is_unknown(response: web.Response) -> bool:
    """Tell whether a broker says that it has no such instance."""
    if response.status != HTTPStatus.NOT_FOUND or not isinstance(response.body, bytes):
        return False
    try:
        document = load_json(response.body)
    except JsonError:
        return False
    return isinstance(document, dict) and document.get("error_code") == UNKNOWN_INSTANCE
