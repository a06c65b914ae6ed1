"""Offsets in transactions on real logs: staged, then shown or forgotten (KIP-98, KIP-447)."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from group_cluster import NO_DELAY, delete_topic, lead, records_of, run
from replica_cluster import ReplicaCluster
from transactional_groups import TransactionalGroups

from fairlead_broker.group.removal import expire
from fairlead_broker.group.stale_offsets import RETRY_S
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.delete_groups import DeleteGroupsRequest
from fairlead_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from fairlead_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fairlead_wire.records import iter_batches

FAR_FUTURE_MS = 2**62
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


async def restart(groups: TransactionalGroups) -> None:
    await groups.cluster.stop(1)
    await groups.cluster.start(1)
    groups.restarted()
    await groups.ready()


def test_offsets_count_once_their_transaction_is_committed(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            await groups.committed("g", 5)
            assert await groups.staged("g", 6) is ErrorCode.NONE
            assert await groups.staged("g", 3, partition=1) is ErrorCode.NONE
            for _ in range(2):
                assert groups.stable_offset("g") is UNSTABLE
                assert groups.stable_offset("g", partition=1) is UNSTABLE
                assert groups.stable_offset("g", partition=2) == -1
                assert (groups.offset("g"), groups.offset("g", partition=1)) == (5, -1)
                await restart(groups)
            assert await groups.ended(is_commit=True) is ErrorCode.NONE
            for _ in range(2):
                assert (groups.stable_offset("g"), groups.offset("g")) == (6, 6)
                assert groups.stable_offset("g", partition=1) == 3
                await restart(groups)

    run(story())


def test_offsets_of_an_aborted_transaction_never_were(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            await groups.committed("g", 5)
            await groups.staged("g", 6)
            await groups.staged("only-aborted", 6)
            assert await groups.ended(is_commit=False) is ErrorCode.NONE
            for _ in range(2):
                assert groups.stable_offset("g") == 5
                assert groups.stable_offset("only-aborted") == -1
                await restart(groups)
            assert "only-aborted" not in groups.coordinator().groups

    run(story())


def test_a_batch_is_of_one_producer_and_keeps_its_turn(tmp_path: Path) -> None:
    """What one turn writes shares a batch only where no transaction is in it."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            calls = [
                groups.commit("g", 1),
                groups.commit("h", 1),
                groups.stage("g", 2, producer=(7, 3)),
                groups.stage("g", 3, producer=(8, 0)),
                groups.commit("g", 4),
            ]
            marker = groups.end(is_commit=True, producer=(7, 3))
            await cluster.until(lambda: all(each.reply for each in calls) and bool(marker.codes))
            data = cluster.content(1, CONSUMER_OFFSETS)
            batches = [header for _, header in iter_batches(data)]
            assert [
                (each.records_count, each.producer_id, each.producer_epoch) for each in batches
            ] == [(2, -1, -1), (1, 7, 3), (1, 8, 0), (1, -1, -1), (1, 7, 3)]
            assert [each.is_transactional for each in batches] == [False, True, True, False, True]
            assert [each.is_control for each in batches] == [False] * 4 + [True]
            # The plain one is the last record of its key, whatever the marker says.
            assert groups.offset("g") == 4

    run(story())


def test_a_transaction_is_verified_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            verification = groups.verification[1]
            place = (CONSUMER_OFFSETS, 0)
            assert await groups.staged("g", 1) is ErrorCode.NONE
            assert await groups.staged("h", 1, partition=1) is ErrorCode.NONE
            assert verification.asked == [("id-9", 9, 0, [place], False)]
            assert await groups.ended(is_commit=True) is ErrorCode.NONE
            assert (groups.offset("g"), groups.offset("h", partition=1)) == (1, 1)
            assert await groups.staged("g", 1, version=5) is ErrorCode.NONE
            assert verification.asked[1:] == [("id-9", 9, 0, [place], True)]

    run(story())


async def told(groups: TransactionalGroups, group: str, topics: Iterable[str]) -> list[ErrorCode]:
    """What is answered to a commit of an offset of each topic."""
    slots = [TxnOffsetCommitRequestPartition(0, 5)]
    request = TxnOffsetCommitRequest(
        transactional_id="id-9",
        group_id=group,
        producer_id=9,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(each, slots) for each in topics],
    )
    call = groups.call(request, 5)
    await groups.cluster.until(lambda: call.reply is not None)
    return [ErrorCode(each.partitions[0].error_code) for each in call.reply.topics]


def test_what_is_refused_at_once_keeps_its_error_whatever_becomes_of_the_others(
    tmp_path: Path,
) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            verification = groups.verification[1]
            verification.code = ErrorCode.PRODUCER_FENCED
            fenced = ErrorCode.INVALID_PRODUCER_EPOCH
            assert await told(groups, "g", ["nope", "t"]) == [unknown, fenced]
            # What could be written is made out anew after the verdict.
            verification.code, verification.is_held = ErrorCode.NONE, True
            answer = asyncio.ensure_future(told(groups, "g", ["nope", "t"]))
            await cluster.until(lambda: len(verification.asked) == 2)
            delete_topic(cluster, "t")
            verification.answer()
            assert await answer == [unknown, unknown]

    run(story())


def test_nobody_is_asked_where_nothing_is_left_to_commit(tmp_path: Path) -> None:
    """In version 5 the question would begin a transaction."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await told(groups, "g", ["nope", "neither"]) == [unknown] * 2
            assert await told(groups, "g", []) == []
            assert await told(groups, "", ["nope", "t"]) == [ErrorCode.INVALID_GROUP_ID] * 2
            assert groups.verification[1].asked == []
            assert groups.log_end() == 0

    run(story())


def test_metadata_is_too_large_only_where_nothing_else_refuses_the_commit(tmp_path: Path) -> None:
    """A fenced producer must not take it for a fault that it may go on after."""
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            verification = groups.verification[1]
            end = groups.log_end()

            async def told(*noted: str, generation: int = -1, group: str = "g") -> list[ErrorCode]:
                slots = [
                    TxnOffsetCommitRequestPartition(index, 5, 7, text)
                    for index, text in enumerate(noted)
                ]
                request = TxnOffsetCommitRequest(
                    "id-9",
                    group,
                    9,
                    0,
                    generation,
                    topics=[TxnOffsetCommitRequestTopic("t", slots)],
                )
                call = groups.call(request, 5)
                await cluster.until(lambda: call.reply is not None)
                (topic,) = call.reply.topics
                return [ErrorCode(each.error_code) for each in topic.partitions]

            text = 4_097 * "m"
            verification.code = ErrorCode.PRODUCER_FENCED
            assert await told(text) == [ErrorCode.INVALID_PRODUCER_EPOCH]
            assert await told(text, "note") == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2
            verification.code = ErrorCode.NONE
            assert await told(text, generation=3) == [ErrorCode.ILLEGAL_GENERATION]
            assert await told(text) == [too_large]
            # Nothing was written, and no group was made.
            assert groups.log_end() == end
            assert "g" not in groups.coordinator().groups
            assert await told(text, "note") == [too_large, ErrorCode.NONE]
            assert await groups.ended(is_commit=True) is ErrorCode.NONE
            assert groups.offset("g", partition=1) == 5

    run(story())


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.PRODUCER_FENCED, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NOT_COORDINATOR, 3, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NETWORK_EXCEPTION, 4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 5, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 3, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_the_coordinator_of_the_transaction_says(
    tmp_path: Path, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            groups.verification[1].code = said
            assert await groups.staged("g", 1, version=version) is told
            assert groups.log_end() == 0
            assert "g" not in groups.coordinator().groups

    run(story())


def test_a_group_is_asked_after_the_transaction_is_verified(tmp_path: Path) -> None:
    """A generation that ends while the coordinator is asked is over (KIP-447)."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            member_id, generation = await groups.stable("g")
            verification = groups.verification[1]
            verification.is_held = True
            zombie = groups.stage("g", 1, member=(member_id, generation))
            gone = groups.stage("g", 2)
            assert zombie.reply is gone.reply is None
            gone.disconnect()
            await groups.stable("g", member_id=member_id)
            end = groups.log_end()
            verification.answer()
            assert (
                cast("Any", zombie).reply.topics[0].partitions[0].error_code
                == ErrorCode.ILLEGAL_GENERATION
            )
            assert gone.reply is None
            assert await groups.committed("h", 1) is ErrorCode.NONE
            assert groups.log_end() == end + 1

    run(story())


def test_members_commit_with_what_they_are(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            member_id, generation = await groups.stable("g")
            cases: list[tuple[dict[str, Any], ErrorCode]] = [
                ({"member": (member_id, generation)}, ErrorCode.NONE),
                # Clients before version 3 could not say who they are.
                ({}, ErrorCode.NONE),
                ({"member": (member_id, generation - 1)}, ErrorCode.ILLEGAL_GENERATION),
                ({"member": (member_id, -1)}, ErrorCode.ILLEGAL_GENERATION),
                ({"member": ("other", generation)}, ErrorCode.UNKNOWN_MEMBER_ID),
                ({"member": ("", generation)}, ErrorCode.UNKNOWN_MEMBER_ID),
                ({"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
            ]
            for options, code in cases:
                assert await groups.staged("g", 1, **options) is code, options
            assert await groups.staged("new", 1, member=("m", 0)) is ErrorCode.ILLEGAL_GENERATION
            assert await groups.staged("new", 1, member=("m", -1)) is ErrorCode.NONE
            assert await groups.staged("g", 1, partition=4) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(story())


def test_a_marker_ends_a_transaction_in_the_middle_of_a_rebalance(tmp_path: Path) -> None:
    """Of all groups of the partition, and of one producer only."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, **NO_DELAY) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            member = await groups.stable("g")
            await groups.staged("g", 1, member=member)
            await groups.staged("h", 2)
            await groups.staged("g", 3, producer=(8, 0), partition=1)
            joining = groups.join("g")
            assert joining.reply is None
            assert groups.coordinator().groups["g"].protocol.state_name == "PreparingRebalance"
            assert await groups.ended(is_commit=True) is ErrorCode.NONE
            assert joining.reply is None
            assert (groups.stable_offset("g"), groups.stable_offset("h")) == (1, 2)
            assert groups.stable_offset("g", partition=1) is UNSTABLE

    run(story())


def test_staged_offsets_move_with_the_coordinator(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, **NO_DELAY) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            await groups.committed("g", 1)
            await groups.staged("g", 2)
            await lead(cluster, 2)
            # The next coordinator has not read the log yet, the one before leads no more.
            for broker_id in (1, 2):
                early = groups.end(is_commit=True, broker_id=broker_id)
                assert early.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
            await groups.ready(2)
            assert groups.stable_offset("g", broker_id=2) is UNSTABLE
            assert groups.offset("g", broker_id=2) == 1
            assert await groups.ended(is_commit=True, broker_id=2) is ErrorCode.NONE
            assert groups.stable_offset("g", broker_id=2) == 2
            assert await groups.ended(is_commit=True, broker_id=2) is ErrorCode.NONE
            await lead(cluster, 1)
            await groups.ready()
            assert groups.stable_offset("g") == 2

    run(story())


def test_a_marker_counts_when_it_is_committed(tmp_path: Path) -> None:
    """G21: and nobody is told before; the next coordinator does what the log says."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            await groups.staged("g", 2)
            await cluster.stop(3)
            staged = groups.stage("g", 3, producer=(8, 0), partition=1)
            marker = groups.end(is_commit=True)
            replica = cluster.partition(2, CONSUMER_OFFSETS)
            await cluster.until(lambda: replica.log_end_offset == 3)
            assert groups.stable_offset("g") is UNSTABLE
            assert groups.stable_offset("g", partition=1) == -1
            assert (marker.codes, staged.reply) == ([], None)
            await lead(cluster, 2)
            assert marker.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
            slot = staged.reply.topics[0].partitions[0]
            assert slot.error_code == ErrorCode.NOT_COORDINATOR
            cluster.change(CONSUMER_OFFSETS, isr=(1, 2))
            await groups.ready(2)
            assert groups.stable_offset("g", broker_id=2) == 2
            assert groups.stable_offset("g", partition=1, broker_id=2) is UNSTABLE

    run(story())


def test_a_marker_that_takes_too_long_is_to_be_sent_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, offsets_commit_timeout_ms="50") as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            await groups.staged("g", 2)
            # That may take longer than its own answer waits for.
            await cluster.until(lambda: groups.stable_offset("g") is UNSTABLE)
            await cluster.stop(2)
            await cluster.stop(3)
            assert await groups.ended(is_commit=True) is ErrorCode.REQUEST_TIMED_OUT
            assert groups.stable_offset("g") is UNSTABLE
            cluster.change(CONSUMER_OFFSETS, isr=(1,))
            await cluster.until(lambda: groups.stable_offset("g") == 2)

    run(story())


def test_a_zombie_ends_and_commits_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            assert await groups.staged("g", 1, producer=(9, 1)) is ErrorCode.NONE
            fenced = ErrorCode.INVALID_PRODUCER_EPOCH
            assert await groups.staged("g", 2, producer=(9, 0)) is fenced
            assert await groups.ended(is_commit=True, producer=(9, 0)) is fenced
            assert groups.stable_offset("g") is UNSTABLE
            ended = await groups.ended(is_commit=True, producer=(9, 1), coordinator_epoch=3)
            assert ended is ErrorCode.NONE
            stale = await groups.ended(is_commit=False, producer=(9, 1), coordinator_epoch=2)
            assert stale is ErrorCode.TRANSACTION_COORDINATOR_FENCED
            assert groups.stable_offset("g") == 1

    run(story())


def test_nothing_staged_expires_nor_does_its_group(tmp_path: Path) -> None:
    """R21: a tombstone would take it from a transaction that is committed afterwards."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            coordinator = groups.coordinator()
            await groups.committed("g", 1)
            await groups.committed("g", 1, partition=1)
            await groups.staged("g", 2)
            await groups.staged("h", 3)
            for group in list(coordinator.groups.values()):
                expire(coordinator, group, now_ms=FAR_FUTURE_MS, retention_ms=1)
            await cluster.until(lambda: groups.offset("g", partition=1) == -1)
            assert groups.offset("g") == 1
            assert set(coordinator.groups) == {"g", "h"}
            await groups.ended(is_commit=True)
            assert (groups.stable_offset("g"), groups.stable_offset("h")) == (2, 3)
            for group in list(coordinator.groups.values()):
                expire(coordinator, group, now_ms=FAR_FUTURE_MS, retention_ms=1)
            await cluster.until(lambda: not coordinator.groups)

    run(story())


def test_deleted_groups_and_offsets_do_not_come_back_with_a_commit(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            await groups.staged("g", 1)
            await groups.staged("h", 2)
            await groups.staged("h", 2, partition=1)
            deletion = await groups.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
            assert deletion.results[0].error_code == ErrorCode.NONE
            assert set(groups.coordinator().groups) == {"h"}
            partitions = [OffsetDeleteRequestPartition(0)]
            request = OffsetDeleteRequest("h", [OffsetDeleteRequestTopic("t", partitions)])
            assert (await groups.ask(request, 0)).error_code == ErrorCode.NONE
            assert groups.stable_offset("h") == -1
            assert groups.stable_offset("h", partition=1) is UNSTABLE
            await groups.ended(is_commit=True)
            for _ in range(2):
                assert (groups.stable_offset("g"), groups.stable_offset("h")) == (-1, -1)
                assert groups.stable_offset("h", partition=1) == 2
                assert set(groups.coordinator().groups) == {"h"}
                await restart(groups)

    run(story())


def test_what_is_staged_for_a_deleted_topic_goes_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            groups = TransactionalGroups(cluster)
            cluster.create("other")
            await groups.ready()
            await groups.committed("g", 1)
            await groups.staged("g", 2)
            await groups.staged("g", 2, topic="other")
            verification = groups.verification[1]
            verification.is_held = True
            late = groups.stage("g", 3, producer=(8, 0))
            delete_topic(cluster, "t")
            verification.answer()
            code = late.reply.topics[0].partitions[0].error_code
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            offsets = groups.coordinator().groups["g"].offsets
            await cluster.until(lambda: list(offsets.unstable()) == [("other", 0)])
            assert not offsets
            # The other one while nobody coordinates.
            await cluster.stop(1)
            delete_topic(cluster, "other")
            await cluster.start(1)
            groups.restarted()
            await groups.ready()
            offsets = groups.coordinator().groups["g"].offsets
            await cluster.until(lambda: not list(offsets.unstable()))
            await groups.ended(is_commit=True)
            assert not offsets

    run(story())


def test_what_is_staged_for_a_deleted_topic_is_not_the_next_one_s(tmp_path: Path) -> None:
    """Too few replicas are in sync to remove it before a topic of that name is made."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=2) as cluster:
            groups = TransactionalGroups(cluster, min_insync_replicas=2)
            await groups.ready()
            await groups.committed("g", 1)
            await groups.staged("g", 2)
            await groups.staged("g", 2, partition=1)
            await cluster.stop(2)
            cluster.change(CONSUMER_OFFSETS, isr=(1,))
            delete_topic(cluster, "t")
            cluster.create("t", partitions=4)
            await asyncio.sleep(0.2 * RETRY_S)
            offsets = groups.coordinator().groups["g"].offsets
            assert set(offsets.unstable()) == {("t", 0), ("t", 1)}
            await cluster.start(2)
            cluster.change(CONSUMER_OFFSETS, isr=(1, 2))
            await groups.staged("g", 7, partition=1, producer=(8, 0))
            await cluster.until(lambda: set(offsets.unstable()) == {("t", 1)})
            assert await groups.ended(is_commit=True) is ErrorCode.NONE
            assert await groups.ended(is_commit=True, producer=(8, 0)) is ErrorCode.NONE
            assert list(offsets.partitions()) == [("t", 1)]
            assert groups.offset("g", partition=1) == 7

    run(story())


def test_a_commit_that_fits_into_no_batch_is_refused_as_such(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, message_max_bytes="90") as cluster:
            groups = TransactionalGroups(cluster)
            await groups.ready()
            assert await groups.staged("g", 1) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            assert records_of(cluster) == []

    run(story())
