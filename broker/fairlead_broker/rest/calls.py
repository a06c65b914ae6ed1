"""Kafka's APIs for HTTP requests: calls of this process's handlers without a socket.

`KafkaCalls.ask` passes a request message, with the client's principal, to the same handler that
answers Kafka clients. So only the handler has authorization, quotas, limits and refusals.
`ask_leader` and `ask_coordinator` ask this broker first. If it refuses because another broker
leads, they ask that broker, within the time that is left.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_broker.api_registry import HANDLERS, NO_REPLY, PENDING, RequestContext
from fairlead_broker.coordinator.coordinator_partition import coordinator_partition
from fairlead_broker.handlers.long_answer import LongAnswer
from fairlead_broker.peer_check import NO_BROKER_IDS
from fairlead_broker.rest.http_quotas import HttpQuotas
from fairlead_broker.rest.peers import PeerUnreachableError
from fairlead_model.ids import CONSUMER_OFFSETS, NO_LEADER
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages import RESPONSES
from fairlead_wire.messages.find_coordinator import FindCoordinatorRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Coroutine

    from fairlead_broker.api_registry import ClientLogin, RequestQuotas
    from fairlead_broker.authorization import Authorizer, Operation, Principal, ResourceType
    from fairlead_broker.broker import Broker
    from fairlead_broker.listener import Listener
    from fairlead_broker.local_replicas import PartitionKey
    from fairlead_broker.peer_check import PeerCheck
    from fairlead_broker.rest.peers import Peers
    from fairlead_broker.rest.records.fetching import Fetches
    from fairlead_wire.message import Message

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "rest"
SPOKEN_VERSIONS: Final[dict[int, int]] = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.FIND_COORDINATOR: 5,
    ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.DESCRIBE_CLUSTER: 1,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
}
"""The version of each request to brokers, this one and others.

During an upgrade brokers of two releases run side by side, so a version may be raised only when
every release that may run then serves it. An HTTP client does not know topic ids, so these are the
newest versions with topic names. For Produce it is the newest version without transactions.
"""
RETRY_S: Final = 0.1
"""Pause before an unreachable leader is asked again, unless a new image arrives before."""
_LEADS_ELSEWHERE: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR, ErrorCode.FENCED_LEADER_EPOCH}
)
_NOT_HEARD_OF: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""A leader answers this if a partition is new and has not reached it yet. It has written nothing:
what a leader wrote to a topic that was deleted since is gone, too."""


class Answer(NamedTuple):
    """A response message. `was_immediate`: it came at once, so nothing waited for replicas."""

    response: Any
    was_immediate: bool


class CallHost:
    """State that all calls of this process share."""

    def __init__(self, broker: Broker, listener: Listener, peers: Peers, fetches: Fetches) -> None:
        self.broker = broker
        self.listener = listener
        """The clients' listener: answers name brokers by their addresses there."""
        self.peers = peers
        self.fetches = fetches
        self.tasks: set[asyncio.Task[Any]] = set()
        self._published: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def publish(self) -> None:
        """Wake the calls that wait for a new image."""
        self.peers.publish(self.broker.image)
        self.fetches.publish(self.broker)
        published, self._published = self._published, self._published.get_loop().create_future()
        published.set_result(None)

    async def news(self, timeout_s: float) -> None:
        """Wait for the next image, but no longer than `timeout_s`."""
        await asyncio.wait((self._published,), timeout=timeout_s)

    def close(self) -> None:
        """End the admin requests that are under way."""
        for task in self.tasks:
            task.cancel()
        self.peers.close()
        self.fetches.close()


class _Call:
    """The reply channel of one call, in place of a Kafka client's connection."""

    def __init__(self, calls: KafkaCalls) -> None:
        self._host = calls.host
        self.broker = calls.host.broker
        self.listener = calls.host.listener
        self.client_host = calls.client_host
        self.principal = calls.principal
        self.authorizer = calls.authorizer
        self.peer_check: PeerCheck | None = None
        self.replica_ids: Container[int] = NO_BROKER_IDS
        self.login: ClientLogin | None = None
        self.quotas: RequestQuotas | None = calls.quotas
        self.charged_ms = 0
        self.used_topic_ids: set[bytes] = set()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_response(self, context: RequestContext, response: Any) -> None:
        """Take the answer of a parked request."""
        if not self.answer.done():
            self.answer.set_result(response)

    def run_later(self, context: RequestContext, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run the coroutine of an admin request; it goes on if the HTTP request ends before it."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._host.tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._host.tasks.discard(task)
        if task.cancelled():
            self.close("this broker is stopping")
            return
        error = task.exception()
        if self.answer.done():
            if error is not None:
                logger.error("an admin request failed", exc_info=error)
        elif error is None:
            self.answer.set_result(task.result())
        else:
            self.answer.set_exception(error)

    def close(self, reason: str) -> None:
        """End the call without an answer, as if its connection was closed."""
        if not self.answer.done():
            self.answer.set_exception(KafkaError(ErrorCode.NETWORK_EXCEPTION, reason))

    def on_proved(self) -> None:
        """End the call: an HTTP client cannot be a broker, so it has no proof to give."""
        self.close("an HTTP client is no broker")

    def charge(self, spent_ms: int) -> None:
        """Only count the time: an HTTP client waits for its answers, and one call has its limit."""
        self.charged_ms += spent_ms


class KafkaCalls:
    """Kafka requests of one HTTP client, in the name of its principal."""

    def __init__(
        self,
        host: CallHost,
        client_host: str,
        principal: Principal,
        authorizer: Authorizer | None,
    ) -> None:
        self.host = host
        self.broker = host.broker
        self.client_host = client_host
        self.principal = principal
        self.authorizer = authorizer
        self._quotas: HttpQuotas | None = None

    @property
    def quotas(self) -> HttpQuotas | None:
        """The quotas of the client; None while no quota applies to any client."""
        if not self.broker.client_quotas.binds_clients:
            return None
        if self._quotas is None:
            self._quotas = HttpQuotas(self.broker, self.principal.name, CLIENT_ID)
        return self._quotas

    def would_allow(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Tell whether the client may do this to a resource, for lists: a no is not logged."""
        return self._context().would_allow(operation, resource_type, name)

    def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise a KafkaError if the client may not do this to a resource."""
        self._context().require(operation, resource_type, name)

    def _context(self) -> RequestContext:
        return RequestContext(_Call(self), 0, 0, 0, CLIENT_ID)

    async def ask(self, request: Message) -> Any:
        """Return the answer of this broker's handler; KafkaError if it gives none.

        If the caller is cancelled, a parked request ends as if its connection had closed.
        """
        return (await self._ask_here(request)).response

    async def _ask_here(self, request: Message) -> Answer:
        handler, version = HANDLERS[request.API_KEY], SPOKEN_VERSIONS[request.API_KEY]
        call = _Call(self)
        context = RequestContext(call, request.API_KEY, version, 0, CLIENT_ID)
        try:
            outcome = handler.call_if_allowed(request, context)
        except RemoteProtocolError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if outcome is NO_REPLY:
            return Answer(None, was_immediate=True)
        was_immediate = outcome is not PENDING or call.answer.done()
        if outcome is PENDING:
            try:
                outcome = await call.answer
            finally:
                if context.parked is not None:
                    context.parked.cancel()
        if isinstance(outcome, LongAnswer):
            outcome = outcome.message
        elif type(outcome) is bytes:
            outcome, _ = RESPONSES[request.API_KEY].decode(memoryview(outcome), 0, version)
        return Answer(outcome, was_immediate)

    async def ask_broker(self, broker_id: int, request: Message, deadline_s: float) -> Any:
        """Return the answer of this or another broker; KafkaError if it does not answer.

        Another broker answers anyone who knows the cluster's secret. So the caller must check that
        the client may see the answer (`would_allow`, `require`).
        """
        if broker_id == self.broker.node_id:
            return await self.ask(request)
        version = SPOKEN_VERSIONS[request.API_KEY]
        try:
            return await self.host.peers.ask(broker_id, request, version, deadline_s)
        except PeerUnreachableError as error:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, str(error)) from error

    async def ask_leader(
        self,
        key: PartitionKey,
        build: Callable[[int], Message],
        code_of: Callable[[Any], int],
        *,
        deadline_s: float,
        is_repeatable: bool = True,
        peers: Peers | Fetches | None = None,
    ) -> Any:
        """Return the answer of the broker that leads a partition; KafkaError if none answers.

        `build` makes the request for the milliseconds that are left, `code_of` returns the
        partition's error in an answer. With `is_repeatable=False` the request is sent again only
        if it has certainly changed nothing: a produce would be written twice. A leader that has not
        heard of the partition yet is asked again. `peers` replaces the connections to other brokers
        that all requests share.
        """

        def leader() -> int:
            partition = self.broker.image.partition(*key)
            return NO_LEADER if partition is None else partition.leader

        return await self._ask_elsewhere(
            leader,
            build,
            code_of,
            deadline_s,
            is_repeatable=is_repeatable,
            passing=_NOT_HEARD_OF,
            peers=peers or self.host.peers,
        )

    async def have_offsets_topic_made(self, group_id: str) -> None:
        """Create the offsets topic if it does not exist yet, as a FindCoordinator request does."""
        if self.broker.image.topic(CONSUMER_OFFSETS) is None:
            await self.ask(FindCoordinatorRequest(coordinator_keys=[group_id]))

    async def ask_coordinator(
        self,
        group_id: str,
        build: Callable[[int], Message],
        code_of: Callable[[Any], int],
        *,
        deadline_s: float,
    ) -> Any:
        """Return the answer of the broker that coordinates a group; KafkaError if none answers.

        The call waits for the offsets topic to exist (`have_offsets_topic_made`).
        """

        def coordinator() -> int:
            topic = self.broker.image.topic(CONSUMER_OFFSETS)
            if topic is None or not topic.partitions:
                return NO_LEADER
            return topic.partitions[coordinator_partition(group_id, len(topic.partitions))].leader

        return await self._ask_elsewhere(
            coordinator,
            build,
            code_of,
            deadline_s,
            is_repeatable=True,
            peers=self.host.peers,
        )

    async def _ask_elsewhere(
        self,
        leader: Callable[[], int],
        build: Callable[[int], Message],
        code_of: Callable[[Any], int],
        deadline_s: float,
        *,
        is_repeatable: bool,
        peers: Peers | Fetches,
        passing: Container[int] = (),
    ) -> Any:
        loop = asyncio.get_running_loop()
        own_id = self.broker.node_id
        while True:
            request = build(max(int((deadline_s - loop.time()) * 1000), 0))
            # Always ask this broker first: it authorizes the client, which a peer does not know.
            answer = await self._ask_here(request)
            response = answer.response
            if code_of(response) not in _LEADS_ELSEWHERE:
                return response
            if not (is_repeatable or answer.was_immediate):
                return response
            leader_id = leader()
            reason = "it has no leader"
            if leader_id not in (NO_LEADER, own_id):
                version = SPOKEN_VERSIONS[request.API_KEY]
                try:
                    response = await peers.ask(leader_id, request, version, deadline_s)
                except PeerUnreachableError as error:
                    reason = str(error)
                    if error.was_sent and not is_repeatable:
                        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, reason) from error
                else:
                    code = code_of(response)
                    if code in passing:
                        reason = "its leader has not heard of it yet"
                    elif code not in _LEADS_ELSEWHERE or not is_repeatable:
                        return response
                    else:
                        reason = "its leader is changing"
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, reason)
            await self.host.news(min(left_s, RETRY_S))
