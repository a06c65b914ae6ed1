"""Requests for a consumer instance of another broker: this broker forwards them.

The name of an instance names its broker. If a client has chosen the name, all brokers are asked in
turn. A request is forwarded once: the broker that receives it answers. It goes over the brokers'
own listener, where both sides have proved that they know the cluster's secret. The request names
the client's principal, which only a broker can do there, and no credential leaves the broker that
has verified it.
"""

from __future__ import annotations

from contextlib import ExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import web

from fairlead_broker.limits import (
    REST_DOCUMENT_BYTES_MAX,
    REST_LEADER_ANSWER_MS,
    REST_PEER_CONNECTIONS_MAX,
    REST_READ_BYTES_MAX,
)
from fairlead_broker.rest.documents.json_text import JsonError, load_json
from fairlead_broker.rest.instances.envelopes import (
    ForwardedRequest,
    pack_request,
    unpack_answer,
)
from fairlead_broker.rest.instances.forwarded_requests import sender_of
from fairlead_broker.rest.instances.instance import unknown_instance
from fairlead_broker.rest.instances.registry import broker_of
from fairlead_broker.rest.peers import Peers, PeerUnreachableError
from fairlead_broker.rest.problems import RETRIABLE, RETRY_AFTER, UNKNOWN_INSTANCE, ProblemError
from fairlead_wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.broker import Broker
    from fairlead_broker.rest.instances.instance_request import ForwardableRequest
    from fairlead_model.cluster import ClusterImage
    from fairlead_wire.messages.envelope import EnvelopeResponse

_PASSED_ON: Final = ("Accept", "Content-Type")
_VERSION: Final = 0
_GRACE_S: Final = REST_LEADER_ANSWER_MS / 1000


class UnreachableError(ProblemError):
    """A 503, because the broker of an instance does not answer."""

    def __init__(self, reason: str) -> None:
        message = f"the broker of this instance cannot be asked: {reason}"
        super().__init__(503, message, code=RETRIABLE, headers=RETRY_AFTER)


class Forwarding:
    """Connections to other brokers for forwarded requests, made when they are needed."""

    def __init__(self, broker: Broker, secret: bytes) -> None:
        self._broker = broker
        # Separate connections: reads that wait must not delay requests that write.
        self._peers = Peers(broker, secret, connections_max=REST_PEER_CONNECTIONS_MAX)

    async def forward(self, request: ForwardableRequest) -> web.StreamResponse:
        """Return the answer of the broker that has the instance; ProblemError 404, 429 or 503.

        Each broker has until `request.deadline_s` and REST_LEADER_ANSWER_MS more to answer.
        """
        # The 429 must come before a broker is asked: it counts the records that it answers as read.
        # The memory is not reserved meanwhile, because a read may wait for long.
        with ExitStack() as looking:
            room = min(request.query.get("max_bytes", 0), REST_READ_BYTES_MAX)
            request.hold(room, looking)
        name = request.path["instance_name"]
        body = b""
        if request.operation.body is not None and request.http.body_exists:
            body = await request.body.read(REST_DOCUMENT_BYTES_MAX)
        failure: ProblemError | None = None
        for broker_id in self._candidates(request, name):
            target = request.http.rel_url.raw_path_qs
            try:
                response = await self._ask(request, request.http.method, broker_id, target, body)
            except UnreachableError as error:
                failure = failure or error
                continue
            if not _is_unknown(response):
                answered = response.body
                request.hold_anyway(len(answered) if isinstance(answered, bytes) else 0)
                request.maybe_compress(response)
                return response
        raise failure or unknown_instance(name)

    async def exists_elsewhere(self, request: ForwardableRequest, path: str, name: str) -> bool:
        """Tell whether another broker that can be asked has an instance of this name."""
        for broker_id in self._candidates(request, name):
            try:
                response = await self._ask(request, "HEAD", broker_id, path, b"")
            except UnreachableError:
                continue
            if response.status == HTTPStatus.OK:
                return True
        return False

    def publish(self, image: ClusterImage) -> None:
        """Stop waiting for answers of brokers that the controller has fenced."""
        self._peers.publish(image)

    def close(self) -> None:
        """Close all connections."""
        self._peers.close()

    def _candidates(self, request: ForwardableRequest, name: str) -> Iterator[int]:
        """Yield the brokers that may have the instance."""
        if sender_of(request.http) is not None:
            return
        image = self._broker.image
        holder = broker_of(name)
        for broker_id in sorted(image.brokers) if holder is None else (holder,):
            registration = image.brokers.get(broker_id)
            if broker_id == self._broker.node_id or registration is None or registration.fenced:
                continue
            if registration.rest_url is not None:
                yield broker_id

    async def _ask(
        self, request: ForwardableRequest, method: str, broker_id: int, target: str, body: bytes
    ) -> web.Response:
        """Forward a request, and wait until its deadline; UnreachableError."""
        given = request.http.headers
        envelope = pack_request(
            ForwardedRequest(
                method,
                target,
                {name: ", ".join(given.getall(name)) for name in _PASSED_ON if name in given},
                body,
                request.kafka.principal,
                request.kafka.client_host,
            )
        )
        until_s = request.deadline_s + _GRACE_S
        asked = self._peers.ask(broker_id, envelope, _VERSION, until_s)
        try:
            response: EnvelopeResponse | None
            response = await request.kafka.host.fetches.wait(asked, until_s)
            if response is None:
                raise UnreachableError("it does not answer in time")
            if response.error_code or response.response_data is None:
                raise UnreachableError("it serves no HTTP API")
            answer = unpack_answer(response.response_data)
        except (PeerUnreachableError, RemoteProtocolError) as error:
            raise UnreachableError(str(error)) from error
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


def _is_unknown(response: web.Response) -> bool:
    """Tell whether a broker says that it has no such instance."""
    if response.status != HTTPStatus.NOT_FOUND or not isinstance(response.body, bytes):
        return False
    try:
        document = load_json(response.body)
    except JsonError:
        return False
    return isinstance(document, dict) and document.get("error_code") == UNKNOWN_INSTANCE
