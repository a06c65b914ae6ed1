"""Sessions with peers of another release: more fields, more kinds, fewer fields, other versions."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from waiting import until

from fairlead_broker.session.controller_session import ControllerSession
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.codec import encode_changes, encode_registration
from fairlead_model.delta import BrokerChanged, BrokerRemoved, PartitionChanged, TopicChanged
from fairlead_model.features import FAIRLEAD_VERSION, SUPPORTED_FEATURES, UNSAID_FEATURES
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.release import RELEASE
from fairlead_model.session.refusals import RefusalCode
from fairlead_model.session.session_messages import pack_message, unpack_message
from fairlead_model.session.session_protocol import (
    SESSION_PATH,
    VERSIONS,
    Greeting,
    MessageType,
    NoCommonVersionError,
    SessionProtocolError,
    SessionVersions,
    broker_proof,
    common_version,
    controller_proof,
    is_proof,
    read_versions,
)
from fairlead_model.topic import TopicHeader

SECRET = b"0123456789abcdef0123456789abcdef"
NEXT = SessionVersions(VERSIONS.lowest, VERSIONS.highest + 1)
AFTER_NEXT = SessionVersions(VERSIONS.highest + 1, VERSIONS.highest + 2)
MORE: dict[str, Any] = {"next_release": {"level": 7}}
TOPIC_ID = TopicId(b"t" * 16)
REGISTRATION = BrokerRegistration(
    0,
    endpoints=(Endpoint("INTERNAL", "127.0.0.1", 1, is_internal=True),),
    host_name="here",
    directory_id="disk-0",
    start_id="start-0",
)
IMAGE = (
    BrokerChanged(REGISTRATION),
    TopicChanged(TopicHeader("t", TOPIC_ID, 1)),
    PartitionChanged(TOPIC_ID, 0, PartitionRegistration((0,), (0,), 0)),
)


class OtherController:
    """A controller of another release, which lets one broker in and sends what a test wants."""

    def __init__(self, versions: SessionVersions) -> None:
        self.versions = versions
        self.port = 0
        self.asked: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self._socket: web.WebSocketResponse

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[ControllerSession]:
        """Serve; give a broker of this release that has begun to connect."""
        application = web.Application()
        application.router.add_get(SESSION_PATH, self._serve)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"ws://127.0.0.1:{runner.addresses[0][1]}"
        session = ControllerSession([url], SECRET, REGISTRATION, lambda delta, image: None)
        await session.start()
        try:
            yield session
        finally:
            await session.stop()
            await runner.cleanup()

    async def tell(self, message_type: str, **fields: Any) -> None:
        await self._socket.send_bytes(pack_message(message_type, **fields, **MORE))

    async def change(self, sequence: int, *changes: Any, is_image: bool = False) -> None:
        await self.tell(
            MessageType.CHANGES,
            position=[1, sequence, "more"],
            changes=list(changes),
            is_image=is_image,
            is_last=True,
        )

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        self._socket = web.WebSocketResponse()
        await self._socket.prepare(request)
        nonce = os.urandom(32)
        await self.tell(MessageType.CHALLENGE, versions=[*self.versions, "more"], nonce=nonce)
        answer = unpack_message(await self._socket.receive_bytes())
        theirs = read_versions(answer["versions"])
        greeting = Greeting(nonce, answer["nonce"], self.versions, theirs)
        assert is_proof(broker_proof(SECRET, greeting), answer["proof"])
        proof = controller_proof(SECRET, greeting)
        identity = {"cluster_id": "c", "controller_epoch": 1, "is_active": True}
        await self.tell(MessageType.AUTHENTICATED, proof=proof, **identity)
        try:
            self.asked.append(unpack_message(await self._socket.receive_bytes()))
        except TypeError:
            return self._socket  # The broker has closed the connection.
        await self.tell(
            MessageType.REGISTERED,
            broker_epoch=1,
            controller_epoch=1,
            cluster_id="c",
            heartbeat_interval_ms=100,
            session_timeout_ms=5000,
        )
        await self.change(0, *([*each, "more"] for each in encode_changes(IMAGE)), is_image=True)
        async for frame in self._socket:
            message = unpack_message(frame.data)
            if message["type"] == MessageType.HEARTBEAT:
                await self.tell(MessageType.HEARTBEAT_ACK, number=message["number"])
            elif message["type"] == MessageType.CALL:
                body = {"first_producer_id": 5, "count": 10} | MORE
                await self.tell(MessageType.REPLY, id=message["id"], body=body)
        return self._socket


def run(story: Callable[[], Any]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(whole())


def test_a_broker_follows_a_controller_of_the_next_release(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        controller = OtherController(NEXT)
        async with controller.listening() as session:
            await session.wait_registered(30)
            assert session.image.partition("t", 0) == IMAGE[2].partition
            assert session.image.brokers == {0: REGISTRATION}
            await controller.tell("?weather", forecast="rain")
            await controller.tell("?weather", forecast="sun")
            await controller.change(1, ["?note", TOPIC_ID], *encode_changes([BrokerRemoved(0)]))
            await controller.change(2, ["?note", TOPIC_ID])
            await until(lambda: session.position.sequence == 2)
            assert session.image.brokers == {}
            reply = await session.call("allocate_producer_ids", {}, timeout_ms=30_000)
            assert reply["first_producer_id"] == 5
        assert len(controller.asked) == 1

    with caplog.at_level(logging.INFO):
        run(story)
    skipped = [text for text in caplog.messages if "skipping" in text]
    assert [text.split("'")[1] for text in skipped] == ["?weather", "?note"]
    assert f"version {VERSIONS.highest} of the session" in caplog.text


def test_a_change_that_may_not_be_skipped_ends_the_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        controller = OtherController(NEXT)
        async with controller.listening() as session:
            await session.wait_registered(30)
            known = encode_changes([BrokerRemoved(0)])
            await controller.change(1, *known, ["partition_moved", TOPIC_ID, 0])
            await until(lambda: len(controller.asked) > 1)
            # Nothing of that delta is in the image: it would be half of what the controller means.
            assert session.image.brokers == {0: REGISTRATION}

    run(story)
    assert "'partition_moved', which this release does not know" in caplog.text


def test_a_broker_says_that_it_is_too_old_for_a_controller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        controller = OtherController(AFTER_NEXT)
        async with controller.listening() as session:
            await until(lambda: "the broker is too old" in caplog.text)
            assert not session.is_connected
            assert controller.asked == []

    with caplog.at_level(logging.INFO):
        run(story)
    assert "the controller speaks version 2 to 3 of the session, the broker 1" in caplog.text


class OtherBroker:
    """A broker of another release."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self._url = url
        self._stack = stack
        self._socket: aiohttp.ClientWebSocketResponse

    async def greet(
        self, versions: SessionVersions, *, proved: SessionVersions | None = None
    ) -> dict[str, Any]:
        """Authenticate; give the answer. `proved` is what the proof says instead of `versions`."""
        http = await self._stack.enter_async_context(aiohttp.ClientSession())
        self._socket = await http.ws_connect(self._url + SESSION_PATH)
        challenge = await self.receive(MessageType.CHALLENGE)
        nonce = os.urandom(32)
        offered = read_versions(challenge["versions"])
        greeting = Greeting(challenge["nonce"], nonce, offered, proved or versions)
        proof = broker_proof(SECRET, greeting)
        await self.tell(
            MessageType.AUTHENTICATE, versions=[*versions, "more"], nonce=nonce, proof=proof
        )
        answer = await self.receive(MessageType.AUTHENTICATED, MessageType.REFUSED)
        if answer["type"] == MessageType.AUTHENTICATED:
            assert is_proof(controller_proof(SECRET, greeting), answer["proof"])
        return answer

    async def register(self, registration: list[Any], **fields: Any) -> dict[str, Any]:
        await self.tell(
            MessageType.REGISTER, registration=registration, cluster_id="", position=None, **fields
        )
        return await self.receive(MessageType.REGISTERED)

    async def tell(self, message_type: str, **fields: Any) -> None:
        await self._socket.send_bytes(pack_message(message_type, **fields))

    async def receive(self, *expected: str) -> dict[str, Any]:
        """The next message of one of these types; others are passed over."""
        while True:
            message = unpack_message(await self._socket.receive_bytes())
            if message["type"] in expected:
                return message


def test_a_controller_serves_a_broker_of_the_next_release(
    play: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        async with AsyncExitStack() as stack:
            broker = OtherBroker(stage.url, stack)
            assert (await broker.greet(NEXT))["is_active"]
            registration = [*encode_registration(REGISTRATION), {"levels": [1, 2]}]
            registration[2] = [[*end, "more"] for end in registration[2]]
            await broker.register(
                registration,
                unclean=[["gone", 0, "more"]],
                testimony=[-1, -1, [[TOPIC_ID, "gone", [], "more"]], [-1, -1, "more"], "more"],
                **MORE,
            )
            await broker.tell("?weather", forecast="rain")
            beat = {"number": 1, "position": [9, 9, "more"], "is_ready": True, "progress": MORE}
            await broker.tell(MessageType.HEARTBEAT, **beat, **MORE)
            image = stage.controller.committed.image
            await until(lambda: stage.controller.committed.image.is_live(0))
            registered = stage.controller.committed.image.brokers[0]
            assert registered.endpoints == REGISTRATION.endpoints
            assert image.brokers[0].host_name == "here"
            # A call that this release does not know is refused; the session goes on.
            await broker.tell(MessageType.CALL, id=1, method="move_partitions", body={})
            refusal = await broker.receive(MessageType.REPLY)
            assert "unknown method" in refusal["error_message"]
            await broker.tell(MessageType.CALL, id=2, method="allocate_producer_ids", body=MORE)
            assert (await broker.receive(MessageType.REPLY))["body"]["count"] == 1000

    play(story)
    assert "skipping '?weather' of broker 0" in caplog.text


def test_a_controller_serves_a_broker_of_a_release_with_fewer_fields(
    play: Callable[..., Any],
) -> None:
    async def story(stage: Any) -> None:
        await stage.found_cluster_without_levels()
        await stage.start_controller()
        async with AsyncExitStack() as stack:
            broker = OtherBroker(stage.url, stack)
            await broker.greet(VERSIONS)
            registration = encode_registration(REGISTRATION)[:9]
            registration[2] = [[*end[:3], True] for end in registration[2]]
            await broker.register(registration)
            registered = stage.controller.committed.image.brokers[0]
            assert registered.start_id == "start-0"
            # What it does not say counts as the worst: not clean, nothing known of its machine.
            assert (registered.fenced, registered.is_clean, registered.boot_id) == (True, False, "")
            assert registered.features == UNSAID_FEATURES
            # So nothing can be raised that it could not follow.
            update = {"feature": FAIRLEAD_VERSION, "level": 2, "upgrade_type": 1}
            body = {"updates": [update], "validate_only": False}
            await broker.tell(MessageType.CALL, id=1, method="update_features", body=body)
            refusal = await broker.receive(MessageType.REPLY)
            assert refusal["error_code"] == RefusalCode.INVALID_UPDATE_VERSION
            assert "not supported by broker 0 (fairlead.version 1 to 1" in refusal["error_message"]

    play(story)


def test_a_broker_of_an_older_release_is_refused_where_a_level_was_raised(
    play: Callable[..., Any],
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()  # A new cluster has the highest level from its beginning.
        async with AsyncExitStack() as stack:
            broker = OtherBroker(stage.url, stack)
            await broker.greet(VERSIONS)
            await broker.tell(
                MessageType.REGISTER,
                registration=encode_registration(REGISTRATION)[:9],
                cluster_id="",
                position=None,
            )
            refusal = await broker.receive(MessageType.REFUSED)
            assert refusal["code"] == RefusalCode.UNSUPPORTED_VERSION
            assert refusal["message"] == (
                "broker 0 does not support the feature levels of this cluster: fairlead.version is "
                f"at level 2, supported is 1 to 1; run release {RELEASE}, or a later one"
            )

    play(story)


def test_a_broker_that_joined_before_the_controller_was_upgraded_is_heard_anew(
    play: Callable[..., Any],
) -> None:
    async def story(stage: Any) -> None:
        await stage.found_cluster_without_levels()
        await stage.start_controller()
        # The older controller reads and stores nothing of the features that the broker has.
        async with AsyncExitStack() as stack:
            broker = OtherBroker(stage.url, stack)
            await broker.greet(VERSIONS)
            await broker.register(encode_registration(REGISTRATION)[:15])
        epoch = stage.controller.committed.image.brokers[0].broker_epoch
        await stage.stop_controller()
        await stage.start_controller()
        assert stage.controller.committed.image.brokers[0].features == UNSAID_FEATURES
        async with AsyncExitStack() as stack:
            broker = OtherBroker(stage.url, stack)
            await broker.greet(VERSIONS)
            registered = await broker.register(encode_registration(REGISTRATION))
            assert registered["broker_epoch"] == epoch
            known = stage.controller.committed.image.brokers[0]
            assert known.features == SUPPORTED_FEATURES

    play(story)


def test_a_controller_says_that_it_is_too_old_for_a_broker(play: Callable[..., Any]) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        async with AsyncExitStack() as stack:
            refusal = await OtherBroker(stage.url, stack).greet(AFTER_NEXT)
            assert refusal["code"] == RefusalCode.UNSUPPORTED_VERSION
            assert refusal["message"].startswith("the controller is too old")

    play(story)


def test_versions_that_were_changed_on_the_way_are_found_out(play: Callable[..., Any]) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        async with AsyncExitStack() as stack:
            refusal = await OtherBroker(stage.url, stack).greet(VERSIONS, proved=NEXT)
            assert refusal["code"] == RefusalCode.CLUSTER_AUTHORIZATION_FAILED

    play(story)


@pytest.mark.parametrize(
    ("controller", "broker", "common"),
    [((1, 1), (1, 1), 1), ((1, 3), (2, 5), 3), ((2, 5), (1, 3), 3), ((1, 9), (4, 4), 4)],
)
def test_the_highest_version_in_common_is_used(
    controller: tuple[int, int], broker: tuple[int, int], common: int
) -> None:
    assert common_version(SessionVersions(*controller), SessionVersions(*broker)) == common


@pytest.mark.parametrize(
    ("controller", "broker", "old"),
    [((1, 1), (2, 3), "the controller is too old"), ((4, 6), (1, 3), "the broker is too old")],
)
def test_who_is_too_old_is_said(
    controller: tuple[int, int], broker: tuple[int, int], old: str
) -> None:
    with pytest.raises(NoCommonVersionError, match=old):
        common_version(SessionVersions(*controller), SessionVersions(*broker))


@pytest.mark.parametrize("value", [None, 1, [1], [2, 1], [0, 1], [1, "2"], [True, 1], [1, 2**31]])
def test_what_names_no_versions_is_refused(value: object) -> None:
    with pytest.raises(SessionProtocolError, match="no versions"):
        read_versions(value)
