"""The stream of topics: only what changed, everything where that is not known."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions import draining
from fairlead_controller.decisions.events import (
    DeleteTopics,
    DrainBrokers,
    FenceBroker,
    FenceReason,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from fairlead_controller.kubernetes import drains as drains_module
from fairlead_controller.kubernetes import topic_feed
from fairlead_controller.kubernetes.drains import Drains
from fairlead_controller.kubernetes.topic_feed import TopicFeed, build_topic_entry
from fairlead_controller.stores.file import open_file_store
from fairlead_model.cluster import TopicImage
from fairlead_model.session.calls import DeletableTopic, DeleteTopicsCall

Story = Callable[[Controller, TopicFeed], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path, make_registration: Any) -> Callable[[Story], None]:
    """Run a story with a controller of three brokers."""

    async def whole(story: Story) -> None:
        store = await open_file_store(tmp_path)
        controller = await open_controller(store, now_ms=lambda: 0)
        deciding = asyncio.create_task(controller.run())
        feed = TopicFeed(controller)
        for number in range(3):
            event = RegisterBroker(make_registration(number), "")
            epoch = (await controller.submit(event))["broker_epoch"]
            await controller.submit(UnfenceBroker(number, epoch))
        try:
            async with asyncio.timeout(10):
                await story(controller, feed)
        finally:
            deciding.cancel()
            await asyncio.gather(deciding, return_exceptions=True)
            await store.close()

    return lambda story: asyncio.run(whole(story))


def delete(name: str) -> DeleteTopics:
    return DeleteTopics(DeleteTopicsCall(topics=[DeletableTopic(name=name, topic_id=bytes(16))]))


def names(answer: dict[str, Any]) -> list[str]:
    return [topic["name"] for topic in answer["topics"]]


def test_only_what_changed_after_a_position(play: Any, make_create: Any, make_topic: Any) -> None:
    async def story(controller: Controller, feed: TopicFeed) -> None:
        await controller.submit(make_create(make_topic("a", partitions=3, replication_factor=3)))
        first = await feed.changes("", 0)
        assert (names(first), first["isFull"]) == (["a"], True)
        assert first["topics"][0]["leaders"] == "0:1 1:1 2:1"
        assert first["topics"][0]["problems"] == []
        await controller.submit(make_create(make_topic("b")))
        second = await feed.changes(first["position"], 0)
        assert (names(second), second["isFull"]) == (["b"], False)
        await controller.submit(DrainBrokers({0: "a test"}))
        third = await feed.changes(second["position"], 0)
        assert "a" in names(third)
        assert third["topics"][0]["leaders"] in {"1:2 2:1", "1:1 2:2"}
        again = await feed.changes(first["position"], 0)
        assert set(names(again)) >= {"a", "b"}

    play(story)


def test_a_reader_waits_for_news(play: Any, make_create: Any, make_topic: Any) -> None:
    async def story(controller: Controller, feed: TopicFeed) -> None:
        start = (await feed.changes("", 0))["position"]
        reading = asyncio.create_task(feed.changes(start, 60))
        silent = await feed.changes(start, 0.01)
        assert (names(silent), silent["position"]) == ([], start)
        await controller.submit(make_create(make_topic("a")))
        assert names(await reading) == ["a"]

    play(story)


def test_brokers_are_no_news(play: Any, make_registration: Any) -> None:
    async def story(controller: Controller, feed: TopicFeed) -> None:
        start = (await feed.changes("", 0))["position"]
        await controller.submit(RegisterBroker(make_registration(7), ""))
        assert (await feed.changes("", 0))["position"] == start

    play(story)


def test_removed_topics_are_named_until_the_name_is_taken_again(
    play: Any, make_create: Any, make_topic: Any
) -> None:
    async def story(controller: Controller, feed: TopicFeed) -> None:
        await controller.submit(make_create(make_topic("a")))
        start = (await feed.changes("", 0))["position"]
        await controller.submit(delete("a"))
        gone = await feed.changes(start, 0)
        assert (names(gone), gone["removed"]) == ([], ["a"])
        await controller.submit(make_create(make_topic("a")))
        back = await feed.changes(start, 0)
        assert (names(back), back["removed"]) == (["a"], [])

    play(story)


def test_what_is_not_remembered_is_told_whole(
    play: Any, make_create: Any, make_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_feed, "REMOVALS_KEPT_MAX", 1)

    async def story(controller: Controller, feed: TopicFeed) -> None:
        for name in "abc":
            await controller.submit(make_create(make_topic(name)))
        start = (await feed.changes("", 0))["position"]
        for name in "ab":
            await controller.submit(delete(name))
        answer = await feed.changes(start, 0)
        assert (answer["isFull"], names(answer)) == (True, ["c"])
        for strange in ("7.1", "1.99", "nonsense", "1.", ".1"):
            assert (await feed.changes(strange, 60))["isFull"], strange

    play(story)


def test_topics_are_described_beside_the_loop(
    play: Any, make_create: Any, make_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator asks for all of them right after a takeover; what comes then is not lost."""
    ticked = threading.Event()

    def wait_for_the_loop(topic: TopicImage) -> dict[str, Any]:
        assert ticked.wait(5), "the loop stands still"
        return build_topic_entry(topic)

    async def story(controller: Controller, feed: TopicFeed) -> None:
        await controller.submit(make_create(make_topic("a")))
        start = (await feed.changes("", 0))["position"]
        await controller.submit(make_create(make_topic("b")))
        monkeypatch.setattr(topic_feed, "build_topic_entry", wait_for_the_loop)
        reading = [asyncio.create_task(feed.changes(since, 0)) for since in ("", start)]
        await asyncio.sleep(0)
        await controller.submit(make_create(make_topic("c")))
        ticked.set()
        for answer, wanted in zip(await asyncio.gather(*reading), (["a", "b"], ["b"]), strict=True):
            assert names(answer) == wanted
            assert names(await feed.changes(answer["position"], 0)) == ["c"]

    play(story)


def test_drains_follow_the_wish(play: Any, make_create: Any, make_topic: Any) -> None:
    async def story(controller: Controller, feed: TopicFeed) -> None:
        await controller.submit(make_create(make_topic("a", partitions=3, replication_factor=3)))
        wish: dict[int, str] = {}
        drains = Drains(controller, lambda brokers: wish)
        following = asyncio.create_task(drains.run())

        async def until(draining: set[int]) -> None:
            while controller.committed.draining != draining:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

        wish[1] = "its pod is being deleted"
        drains.look_again()
        await until({1})
        assert await drains.set_by_hand(2, is_draining=True) == 0
        assert controller.committed.draining == {1, 2}
        assert {part.leader for part in controller.committed.image.topic("a").partitions} == {0}  # type: ignore[union-attr]
        del wish[1]
        drains.look_again()
        await until({2})
        await drains.set_by_hand(2, is_draining=False)
        assert controller.committed.draining == set()
        assert not following.done()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    play(story)


def test_a_drain_by_hand_goes_on_while_leaders_remain(
    play: Any, make_create: Any, make_topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had to wait for a broker to come or go, where it was the first drain."""
    monkeypatch.setattr(draining, "ELECTED_PER_DECISION_MAX", 1)
    monkeypatch.setattr(drains_module, "ASK_AGAIN_S", 0.01)

    async def story(controller: Controller, feed: TopicFeed) -> None:
        topic = make_topic("a", partitions=9, replication_factor=3)
        await controller.submit(make_create(topic))
        drains = Drains(controller, lambda brokers: {})
        following = asyncio.create_task(drains.run())
        await asyncio.sleep(0)
        assert await drains.set_by_hand(2, is_draining=True) == 2
        while 2 in leaders_of(controller):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    play(story)


def leaders_of(controller: Controller) -> list[int]:
    (topic,) = controller.committed.image.topics()
    return [partition.leader for partition in topic.partitions]


def test_a_broker_that_is_forgotten_takes_its_drain_with_it(
    play: Any, make_registration: Any
) -> None:
    """Else the next broker of its id would lead nothing until the controller changes."""

    async def story(controller: Controller, feed: TopicFeed) -> None:
        drains = Drains(controller, lambda brokers: {})
        following = asyncio.create_task(drains.run())
        await drains.set_by_hand(2, is_draining=True)
        epoch = controller.committed.image.brokers[2].broker_epoch
        await controller.submit(FenceBroker(2, epoch, FenceReason.STOPPED))
        await controller.submit(UnregisterBroker(2))
        again = RegisterBroker(make_registration(2, start_id="another"), "")
        epoch = (await controller.submit(again))["broker_epoch"]
        await controller.submit(UnfenceBroker(2, epoch))
        await drains.set_by_hand(1, is_draining=True)
        assert controller.committed.draining == {1}
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    play(story)
