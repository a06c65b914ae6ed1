"""A decision that breaks a rule of the records is stopped before the store, and the reign goes on.

Each test breaks production code that decides, and lets the real controller carry the outcome out.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead_controller import controller as shell
from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions import isr_changes, leadership, minimum_in_sync
from fairlead_controller.decisions.events import (
    AllocateProducerIds,
    AlterPartition,
    CreateTopics,
    Decision,
    ElectLeaders,
    ElectOnRequest,
    FenceBroker,
    FenceReason,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.leader_election import ElectionReason, Outcome
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.stores.metadata_store import MetadataStore
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import PartitionChanged, TopicImage
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.calls import (
    AlterPartitionCall,
    CreatableTopic,
    ElectionType,
    IsrProposal,
)
from fairlead_model.session.refusals import RefusalCode, RefusedError

WRONG = 0
"""Index of the partition that a broken decision is wrong about; the other one is 1."""

Story = Callable[[Controller, MetadataStore], Awaitable[None]]


@pytest.fixture
def play(
    tmp_path: Path,
    make_registration: Callable[..., BrokerRegistration],
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> Callable[[Story], None]:
    """Run a story on three brokers and a topic of two partitions that broker 0 leads."""

    async def run(story: Story) -> None:
        store = await open_file_store(tmp_path)
        controller = await open_controller(store, now_ms=lambda: 0)
        running = asyncio.create_task(controller.run())
        try:
            for broker_id in range(3):
                event = RegisterBroker(make_registration(broker_id), "")
                epoch = (await controller.submit(event))["broker_epoch"]
                await controller.submit(UnfenceBroker(broker_id, epoch))
            spread = {0: [0, 1, 2], 1: [0, 1, 2]}
            topic = make_topic("t", partitions=-1, replication_factor=-1, assignments=spread)
            await controller.submit(make_create(topic))
            await story(controller, store)
            assert not running.done(), "the reign goes on"
            await controller.submit(AllocateProducerIds(0))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()

    return lambda story: asyncio.run(run(story))


def topic_of(controller: Controller) -> TopicImage:
    topic = controller.committed.image.topic("t")
    assert topic is not None
    return topic


def record(controller: Controller, index: int = WRONG) -> PartitionRegistration:
    return topic_of(controller).partitions[index]


def led_from_outside(record: PartitionRegistration) -> PartitionRegistration:
    """The next version of a record, its leader outside of the ISR."""
    return dataclasses.replace(
        record, leader=0, isr=(1, 2), partition_epoch=record.partition_epoch + 1
    )


def proposal(controller: Controller, index: int, *isr: int) -> IsrProposal:
    brokers, known = controller.committed.image.brokers, record(controller, index)
    return IsrProposal(
        topic_id=topic_of(controller).topic_id,
        index=index,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.partition_epoch,
        isr=[[member, brokers[member].broker_epoch] for member in isr],
    )


def alter(controller: Controller, *proposals: IsrProposal) -> AlterPartition:
    epoch = controller.committed.image.brokers[0].broker_epoch
    return AlterPartition(0, AlterPartitionCall(broker_epoch=epoch, partitions=list(proposals)))


def fence(controller: Controller, broker_id: int) -> FenceBroker:
    epoch = controller.committed.image.brokers[broker_id].broker_epoch
    return FenceBroker(broker_id, epoch, FenceReason.SESSION_EXPIRED)


def elects_wrongly(patch: pytest.MonkeyPatch) -> None:
    """Break elections in partition 0: a mutant of `leadership.elect_in`."""
    elect_in = leadership.elect_in

    def elect(state: Any, topic: TopicImage, index: int, *rest: Any, **named: Any) -> Outcome:
        if index != WRONG:
            return elect_in(state, topic, index, *rest, **named)
        return Outcome(led_from_outside(topic.partitions[index]), ElectionReason.FIRST_IN_SYNC)

    patch.setattr(leadership, "elect_in", elect)


def test_a_leader_outside_the_isr_never_reaches_the_store(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """I5: one proposal is answered with an error, and the others of the call are carried out."""

    async def story(controller: Controller, store: MetadataStore) -> None:
        before = record(controller)
        accept = isr_changes._accept

        def accept_wrongly(state: Any, topic: TopicImage, asked: IsrProposal) -> Outcome:
            if asked["index"] != WRONG:
                return accept(state, topic, asked)
            return Outcome(led_from_outside(topic.partitions[WRONG]), ElectionReason.STAYS)

        both = alter(controller, proposal(controller, 0, 0, 1), proposal(controller, 1, 0, 1))
        with monkeypatch.context() as patch:
            patch.setattr(isr_changes, "_accept", accept_wrongly)
            reply = await controller.submit(both)
        wrong, right = reply["partitions"]
        assert wrong["error_code"] == RefusalCode.UNKNOWN_SERVER_ERROR
        assert (wrong["partition_epoch"], wrong["isr"]) == (before.partition_epoch, [0, 1, 2])
        assert (right["error_code"], right["isr"]) == (0, [0, 1])
        assert record(controller) == before
        stored = [
            line
            for table in (await store.load()).values()
            for key, line in table.lines.items()
            if key.startswith("partition/") and key.endswith("/0")
        ]
        assert len(stored) == 1 and '"isr":[0,1,2]' in stored[0]
        assert controller.metrics.broken_decisions == {"AlterPartition": 1}
        assert "t-0: leader 0 is not in the isr (1, 2)" in caplog.text
        # The next one of that partition is decided on the record as it was.
        reply = await controller.submit(alter(controller, proposal(controller, 0, 0, 2)))
        assert reply["partitions"][0]["isr"] == [0, 2]

    play(story)


def test_a_death_moves_all_leaders_but_one_that_would_be_wrong(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(controller: Controller, store: MetadataStore) -> None:
        before = record(controller)
        with monkeypatch.context() as patch:
            elects_wrongly(patch)
            await controller.submit(fence(controller, 0))
        assert controller.committed.image.brokers[0].fenced
        assert record(controller) == before
        assert record(controller, 1).leader == 1
        assert controller.metrics.broken_decisions == {"FenceBroker": 1}
        assert controller.metrics.leader_changes == 1
        # What was left open is made good by the next election that is right.
        await controller.submit(ElectLeaders())
        assert record(controller).leader == 1

    play(story)


def test_a_registration_holds_for_all_partitions_or_for_none(
    play: Callable[[Story], None],
    monkeypatch: pytest.MonkeyPatch,
    make_registration: Callable[..., BrokerRegistration],
) -> None:
    """R11: an incarnation that stayed in sync in one partition could lead without its records."""

    async def story(controller: Controller, store: MetadataStore) -> None:
        image, tables = controller.committed.image, await store.load()
        anew = RegisterBroker(make_registration(0, start_id="another"), "")
        with monkeypatch.context() as patch:
            elects_wrongly(patch)
            with pytest.raises(RefusedError) as refused:
                await controller.submit(anew)
        assert refused.value.code is RefusalCode.UNKNOWN_SERVER_ERROR
        assert controller.committed.image is image
        assert await store.load() == tables, "nothing partial is written"
        assert controller.metrics.broken_decisions == {"RegisterBroker": 1}
        reply = await controller.submit(anew)
        assert reply["broker_epoch"] > image.brokers[0].broker_epoch

    play(story)


def test_who_asks_for_an_election_hears_which_one_was_wrong(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(controller: Controller, store: MetadataStore) -> None:
        await controller.submit(fence(controller, 0))
        brokers = controller.committed.image.brokers
        await controller.submit(UnfenceBroker(0, brokers[0].broker_epoch))
        for index in (0, 1):
            leader = record(controller, index).leader
            epoch = brokers[leader].broker_epoch
            asked = [proposal(controller, index, 0, 1, 2)]
            call = AlterPartitionCall(broker_epoch=epoch, partitions=asked)
            await controller.submit(AlterPartition(leader, call))
        prefer = leadership.prefer_leader

        def prefer_wrongly(state: Any, topic: TopicImage, index: int) -> Outcome | None:
            if index != WRONG:
                return prefer(state, topic, index)
            wrong = led_from_outside(topic.partitions[index])
            return Outcome(wrong, ElectionReason.PREFERRED)

        monkeypatch.setattr(
            "fairlead_controller.decisions.requested_elections.prefer_leader", prefer_wrongly
        )
        partitions = [{"topic": "t", "index": index} for index in (0, 1)]
        elected: Any = {"election_type": ElectionType.PREFERRED, "partitions": partitions}
        reply = await controller.submit(ElectOnRequest(elected))
        codes = [each["error_code"] for each in reply["partitions"]]
        assert codes == [RefusalCode.UNKNOWN_SERVER_ERROR, 0]
        assert [record(controller, index).leader for index in (0, 1)] == [1, 0]

    play(story)


def test_elections_of_a_new_reign_do_not_wait_for_what_is_wrong(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(controller: Controller, store: MetadataStore) -> None:
        with monkeypatch.context() as patch:
            elects_wrongly(patch)
            await controller.submit(fence(controller, 0))
        with monkeypatch.context() as patch:
            patch.setattr(minimum_in_sync, "effective_min_insync_replicas", lambda *_: 0)
            await controller.submit(ElectLeaders())
        assert record(controller).leader == 1
        assert record(controller).min_insync_replicas == 1
        assert controller.metrics.broken_decisions == {"FenceBroker": 1, "ElectLeaders": 1}

    play(story)


def raised(record: PartitionRegistration, **fields: Any) -> PartitionRegistration:
    """The next version of a record with fields that `changed` would not give it."""
    return dataclasses.replace(record, **{"partition_epoch": record.partition_epoch + 1} | fields)


@pytest.mark.parametrize(
    ("index", "break_record"),
    [
        pytest.param(0, led_from_outside, id="I5: a leader outside of the ISR"),
        pytest.param(0, lambda known: raised(known, isr=(0, 1, 9)), id="I5: an ISR of strangers"),
        pytest.param(0, lambda known: raised(known, leader=1), id="I3: two leaders in an epoch"),
        pytest.param(0, lambda known: raised(known, leader_epoch=-1), id="I3: an epoch that falls"),
        pytest.param(
            0, lambda known: raised(known, isr=(0, 1), partition_epoch=0), id="I6: no new epoch"
        ),
        pytest.param(
            0, lambda known: raised(known, isr=(0, 1), partition_epoch=2), id="I6: one left out"
        ),
        pytest.param(3, lambda known: known, id="a gap before the partition"),
    ],
)
def test_whatever_decides_is_looked_at_before_the_store(
    play: Callable[[Story], None],
    monkeypatch: pytest.MonkeyPatch,
    index: int,
    break_record: Callable[[PartitionRegistration], PartitionRegistration],
) -> None:
    """I3, I5, I6: also of a decision that was made without a draft."""

    async def story(controller: Controller, store: MetadataStore) -> None:
        image, tables = controller.committed.image, await store.load()
        wrong = PartitionChanged(
            topic_of(controller).topic_id, index, break_record(record(controller))
        )
        with monkeypatch.context() as patch:
            patch.setattr(shell, "decide", lambda *_, **__: Decision(changes=(wrong,), reply={}))
            with pytest.raises(RefusedError) as refused:
                await controller.submit(AllocateProducerIds(0))
        assert refused.value.code is RefusalCode.UNKNOWN_SERVER_ERROR
        assert controller.committed.image is image
        assert await store.load() == tables
        assert controller.metrics.broken_decisions == {"AllocateProducerIds": 1}

    play(story)
