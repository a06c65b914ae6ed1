"""The shell around the decisions: order, durability, what is told when."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from config_alterations import BROKER, SET, alter, resource

from fairlead_controller import controller as controller_module
from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions import minimum_in_sync
from fairlead_controller.decisions.decide import decide
from fairlead_controller.decisions.events import (
    AllocateProducerIds,
    CreateTopics,
    ElectLeaders,
    FenceBroker,
    FenceReason,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.state import ControllerChange, ControllerState
from fairlead_controller.decisions.tables.loading import Loaded, load_state
from fairlead_controller.decisions.tables.stored_table import StoredTable
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    SealedError,
    TableWrite,
    WriteResult,
)
from fairlead_model.broker import BrokerRegistration
from fairlead_model.session.calls import CreatableTopic
from fairlead_model.session.refusals import RefusalCode, RefusedError


class GatedStore(MetadataStore):
    """Another store behind a gate: writes wait until it opens."""

    def __init__(self, inner: MetadataStore) -> None:
        self.inner = inner
        self.gate = asyncio.Event()
        self.gate.set()
        self.writes = 0

    async def load(self) -> dict[str, StoredTable]:
        return await self.inner.load()

    async def read(self, table: str) -> StoredTable | None:
        return await self.inner.read(table)

    async def write(self, writes: list[TableWrite]) -> list[WriteResult]:  # type: ignore[override]
        self.writes += 1
        await self.gate.wait()
        return await self.inner.write(writes)

    async def close(self) -> None:
        await self.inner.close()


def play(directory: Path, story: Callable[[Controller, GatedStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = GatedStore(await open_file_store(directory))
        controller = await open_controller(store, now_ms=lambda: 0)
        running = asyncio.create_task(controller.run())
        try:
            await controller.submit(ElectLeaders())
            await story(controller, store)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()

    asyncio.run(run())


async def start_brokers(
    controller: Controller, make_registration: Callable[..., Any], count: int = 1
) -> None:
    for broker_id in range(count):
        reply = await controller.submit(RegisterBroker(make_registration(broker_id), ""))
        await controller.submit(UnfenceBroker(broker_id, reply["broker_epoch"]))


def test_each_change_is_applied_to_the_state_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_registration: Callable[..., BrokerRegistration],
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    """The death of a broker changes thousands of records, and others wait for it meanwhile."""

    async def story(controller: Controller, store: GatedStore) -> None:
        await start_brokers(controller, make_registration, 3)
        await controller.submit(make_create(make_topic("t", partitions=7, replication_factor=3)))
        epoch = controller.committed.image.brokers[1].broker_epoch
        death = FenceBroker(1, epoch, FenceReason.SESSION_EXPIRED)
        expected = decide(controller.committed, death, now_ms=0, random=random.Random(1))
        applied: list[ControllerChange] = []
        apply = ControllerState.apply

        def note(state: ControllerState, changes: Iterable[ControllerChange]) -> ControllerState:
            changes = tuple(changes)
            applied.extend(changes)
            return apply(state, changes)

        with monkeypatch.context() as patch:
            patch.setattr(ControllerState, "apply", note)
            await controller.submit(death)
        assert len(expected.changes) == 8
        assert applied == list(expected.changes)
        assert controller.committed.image.brokers[1].fenced

    play(tmp_path, story)


def test_epochs_ids_and_topics_outlive_a_restart(
    tmp_path: Path,
    make_registration: Callable[..., BrokerRegistration],
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    seen: dict[str, object] = {}

    async def first(controller: Controller, store: GatedStore) -> None:
        await start_brokers(controller, make_registration, 3)
        await controller.submit(make_create(make_topic("t", partitions=7)))
        await controller.submit(AllocateProducerIds(0))
        seen["image"] = controller.committed.image

    async def second(controller: Controller, store: GatedStore) -> None:
        state = controller.committed
        assert list(state.image.changes_since(seen["image"])) == []  # type: ignore[arg-type]
        assert state.image.cluster_id == seen["image"].cluster_id  # type: ignore[attr-defined]
        assert state.controller_epoch == 2
        reply = await controller.submit(AllocateProducerIds(0))
        assert reply["first_producer_id"] == 1 << 32, "each reign has ids of its own"
        again = make_registration(0, start_id="again")
        assert (await controller.submit(RegisterBroker(again, "")))["broker_epoch"] == 4

    play(tmp_path, first)
    play(tmp_path, second)


def test_nothing_is_told_before_it_is_durable(
    tmp_path: Path, make_registration: Callable[..., BrokerRegistration]
) -> None:
    async def story(controller: Controller, store: GatedStore) -> None:
        told: list[int] = []
        controller.subscribe(lambda changes, state: told.append(len(changes)))
        store.gate.clear()
        event = RegisterBroker(make_registration(0), "")
        submitted = asyncio.create_task(controller.submit(event))
        refused = asyncio.create_task(controller.submit(UnfenceBroker(0, 99)))
        await asyncio.sleep(0.05)
        assert not submitted.done()
        assert not refused.done(), "a refusal depends on the state it was decided on"
        assert told == []
        assert controller.committed.image.brokers == {}
        store.gate.set()
        assert (await submitted)["broker_epoch"] == 1
        with pytest.raises(RefusedError):
            await refused
        assert told == [1]

    play(tmp_path, story)


def test_events_that_come_during_a_write_are_committed_together(
    tmp_path: Path,
    make_registration: Callable[..., BrokerRegistration],
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    async def story(controller: Controller, store: GatedStore) -> None:
        await start_brokers(controller, make_registration)
        store.gate.clear()
        events: list[CreateTopics] = [make_create(make_topic(f"t{n}")) for n in range(50)]
        tasks = [asyncio.create_task(controller.submit(event)) for event in events]
        await asyncio.sleep(0.02)
        writes = store.writes
        store.gate.set()
        replies = await asyncio.gather(*tasks)
        assert all(reply["topics"][0]["error_code"] == 0 for reply in replies)
        assert store.writes - writes <= 4
        assert len(list(controller.committed.image.topics())) == 50

    play(tmp_path, story)


def test_a_death_is_heard_though_too_much_waits_for_the_store(
    tmp_path: Path,
    make_registration: Callable[..., BrokerRegistration],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The verdict comes once. Refused, the dead broker would keep its leaders for ever."""
    monkeypatch.setattr("fairlead_controller.controller.EVENTS_WAITING_MAX", 1)

    async def story(controller: Controller, store: GatedStore) -> None:
        await start_brokers(controller, make_registration)
        store.gate.clear()
        waiting = asyncio.create_task(controller.submit(AllocateProducerIds(0)))
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="overloaded"):
            await controller.submit(AllocateProducerIds(0))
        verdict = FenceBroker(0, 1, FenceReason.SESSION_EXPIRED)
        fencing = asyncio.create_task(controller.submit(verdict))
        await asyncio.sleep(0)
        store.gate.set()
        await asyncio.gather(waiting, fencing)
        assert controller.committed.image.brokers[0].fenced

    play(tmp_path, story)


def test_later_decisions_see_what_earlier_ones_are_about_to_write(
    tmp_path: Path,
    make_registration: Callable[..., BrokerRegistration],
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    async def story(controller: Controller, store: GatedStore) -> None:
        await start_brokers(controller, make_registration)
        replies = await asyncio.gather(
            *(controller.submit(make_create(make_topic("t"))) for _ in range(3))
        )
        codes = [reply["topics"][0]["error_code"] for reply in replies]
        assert codes == [0, RefusalCode.TOPIC_ALREADY_EXISTS, RefusalCode.TOPIC_ALREADY_EXISTS]

    play(tmp_path, story)


def test_a_deposed_controller_ends_and_lets_nobody_wait(
    tmp_path: Path, make_registration: Callable[..., BrokerRegistration]
) -> None:
    async def run() -> None:
        store = await open_file_store(tmp_path)
        controller = await open_controller(store, now_ms=lambda: 0)
        await open_controller(store, now_ms=lambda: 0)  # a newer one
        running = asyncio.create_task(controller.run())
        with pytest.raises(RefusedError) as refused:
            await controller.submit(RegisterBroker(make_registration(0), ""))
        assert refused.value.code is RefusalCode.NOT_CONTROLLER
        with pytest.raises(SealedError):
            await running
        await store.close()

    asyncio.run(run())


def test_many_tables_are_loaded_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile a Lease is renewed: loading 100,000 partitions takes longer than it lasts."""
    ticked = threading.Event()

    def wait_for_the_loop(tables: Mapping[str, StoredTable], *, controller_epoch: int) -> Loaded:
        assert ticked.wait(10), "the loop stands still"
        return load_state(tables, controller_epoch=controller_epoch)

    async def run() -> None:
        store = await open_file_store(tmp_path)
        await open_controller(store, now_ms=lambda: 0)
        monkeypatch.setattr(controller_module, "LINES_LOADED_AT_ONCE_MAX", 1)
        monkeypatch.setattr(controller_module, "load_state", wait_for_the_loop)
        opening = asyncio.create_task(open_controller(store, now_ms=lambda: 0))
        for _ in range(20):
            await asyncio.sleep(0.01)
        ticked.set()
        assert (await opening).committed.controller_epoch == 2
        await store.close()

    asyncio.run(run())


def test_the_shell_goes_on_with_a_minimum_until_all_have_it(
    tmp_path: Path,
    make_create: Any,
    make_topic: Any,
    make_registration: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(minimum_in_sync, "SPREAD_PER_DECISION_MAX", 1)

    async def story(controller: Controller, store: GatedStore) -> None:
        epoch = (await controller.submit(RegisterBroker(make_registration(0), "")))["broker_epoch"]
        await controller.submit(UnfenceBroker(0, epoch))
        for name in "abcde":
            await controller.submit(make_create(make_topic(name)))
        wanted = ("min.insync.replicas", SET, "2")
        await controller.submit(alter(resource(BROKER, "", wanted)))
        async with asyncio.timeout(10):
            while not controller.committed.is_minimum_spread:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        topics = controller.committed.image.topics()
        assert {topic.partitions[0].min_insync_replicas for topic in topics} == {2}

    play(tmp_path, story)
