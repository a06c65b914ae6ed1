"""Calls to another broker: one at a time, and always an end to them."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from live_broker import SECRET, LiveBroker

from fairlead_broker.tasks import peer_link
from fairlead_broker.tasks.leader_connection import LeaderConnection
from fairlead_broker.tasks.peer_link import PeerLink, PeerLinks
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.cluster import BrokerChanged, BrokerRemoved, ClusterImage, empty_image
from fairlead_wire.messages.api_versions import ApiVersionsRequest

HELLO = ApiVersionsRequest("broker", "1")
PEER = 5


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path) as broker:
        yield broker


def image_of(port: int | None, *, fenced: bool = False) -> ClusterImage:
    """A cluster with one other broker, whose internal listener has this port, if any."""
    endpoints = () if port is None else (Endpoint("I", "127.0.0.1", port, is_internal=True),)
    registration = BrokerRegistration(PEER, endpoints=endpoints, fenced=fenced)
    return empty_image("c").apply([BrokerChanged(registration)])


def broker_in(image: ClusterImage) -> Any:
    return SimpleNamespace(image=image, peer_certificate=None)


def close_all(live: LiveBroker) -> None:
    for each in list(live.server.connections):
        each.close("")


async def ask(link: PeerLink) -> Any:
    """The reply to a question; None if there was none."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    link.call(HELLO, 3, answered.set_result)
    was_busy = link.is_busy
    reply = await asyncio.wait_for(answered, 10)
    assert (was_busy, link.is_busy) == (True, False)
    return reply


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


def test_calls_share_a_connection_on_which_both_have_proved_themselves(live: LiveBroker) -> None:
    async def story() -> None:
        link = PeerLink(broker_in(image_of(live.internal_port)), PEER, SECRET, client_id="c")
        for _ in range(3):
            assert (await ask(link)).error_code == 0
        assert live.broker.metrics.connections_opened == 1
        link.close()

    run(story)


def test_a_peer_with_another_secret_is_told_nothing(live: LiveBroker) -> None:
    async def story() -> None:
        link = PeerLink(broker_in(image_of(live.internal_port)), PEER, b"other", client_id="c")
        assert await ask(link) is None
        link.close()

    run(story)


@pytest.mark.parametrize("where", ["unknown", "nowhere", "refused"])
def test_a_broker_that_cannot_be_reached_gives_no_reply(where: str) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        image = {
            "unknown": empty_image("c"),
            "nowhere": image_of(None),
            "refused": image_of(closed.getsockname()[1]),
        }[where]

        async def story() -> None:
            link = PeerLink(broker_in(image), PEER, SECRET, client_id="c")
            assert await ask(link) is None
            link.close()

        run(story)


def test_a_connection_that_was_closed_is_made_anew(live: LiveBroker) -> None:
    async def story() -> None:
        link = PeerLink(broker_in(image_of(live.internal_port)), PEER, SECRET, client_id="c")
        assert (await ask(link)).error_code == 0
        live.run(partial(close_all, live))
        # It is noticed now, or by a call that ends without a reply.
        while (reply := await ask(link)) is None:
            pass
        assert reply.error_code == 0
        link.close()

    run(story)


class Silent:
    """A listener that takes connections and says nothing."""

    def __init__(self) -> None:
        self.server: asyncio.Server | None = None
        self.connected = asyncio.Event()
        self.closed = asyncio.Event()

    async def __aenter__(self) -> int:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self.server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        assert self.server is not None
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected.set()
        while await reader.read(1000):
            pass
        self.closed.set()
        writer.close()


def test_who_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_link, "CALL_TIMEOUT_S", 0.05)

    async def story() -> None:
        silent = Silent()
        async with silent as port:
            link = PeerLink(broker_in(image_of(port)), PEER, SECRET, client_id="c")
            assert await ask(link) is None
            await asyncio.wait_for(silent.closed.wait(), 10)
            link.close()

    run(story)


def test_a_request_that_is_given_up_is_taken_back_from_the_network(
    live: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent again elsewhere, and may be wrong when it comes late."""
    aborted: list[LeaderConnection] = []
    abort = LeaderConnection.abort

    def note(connection: LeaderConnection) -> None:
        aborted.append(connection)
        abort(connection)

    async def story() -> None:
        link = PeerLink(broker_in(image_of(live.internal_port)), PEER, SECRET, client_id="c")
        assert (await ask(link)).error_code == 0
        monkeypatch.setattr(peer_link, "CALL_TIMEOUT_S", 0.05)
        monkeypatch.setattr(LeaderConnection, "send", lambda *_: 0)
        assert await ask(link) is None
        assert [each.closed.done() for each in aborted] == [True]
        link.close()

    monkeypatch.setattr(LeaderConnection, "abort", note)
    run(story)


@pytest.mark.parametrize("how", ["fenced", "gone"])
def test_no_reply_of_a_broker_out_of_service_is_waited_for(how: str) -> None:
    async def story() -> None:
        silent = Silent()
        async with silent as port:
            links = PeerLinks(broker_in(image_of(port)), SECRET, client_id="c")
            link = links.to(PEER)
            replies: list[Any] = []
            link.call(HELLO, 3, replies.append)
            await asyncio.wait_for(silent.connected.wait(), 10)
            links.publish(image_of(port))
            assert link.is_busy
            links.publish(
                image_of(port, fenced=True)
                if how == "fenced"
                else image_of(port).apply([BrokerRemoved(PEER)])
            )
            assert (replies, link.is_busy) == ([None], False)
            assert (links.to(PEER) is link) is (how == "fenced")
            await asyncio.wait_for(silent.closed.wait(), 10)
            links.close()

    run(story)
