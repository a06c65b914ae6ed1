"""Transactional ids on brokers that replicate: loaded, led elsewhere, written late or never."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from group_cluster import run
from replica_cluster import ReplicaCluster
from transaction_cluster import TransactionCluster

from fairlead_broker.coordinator import loading
from fairlead_broker.coordinator.record_batching import build_batch, encode_body
from fairlead_broker.limits import TRANSACTIONAL_IDS_PER_SHARD_MAX
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_broker.transaction import coordinator
from fairlead_broker.transaction.records import decode_value, encode_key, encode_value
from fairlead_broker.transaction.shard_transactions import ShardTransactions
from fairlead_broker.transaction.transaction_types import (
    CLIENT_EPOCH_MAX,
    TransactionMetadata,
    TransactionState,
)
from fairlead_model.ids import TRANSACTION_STATE
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.end_txn import EndTxnRequest
from fairlead_wire.messages.init_producer_id import InitProducerIdRequest
from fairlead_wire.messages.list_transactions import ListTransactionsRequest
from fairlead_wire.records import Record, decode_batch, iter_batches

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def records_of(cluster: ReplicaCluster, broker_id: int = 1) -> list[Record]:
    data = cluster.content(broker_id, TRANSACTION_STATE)
    return [record for position, _ in iter_batches(data) for record in decode_batch(data, position)]


def lead(cluster: ReplicaCluster, broker_id: int) -> None:
    cluster.change(TRANSACTION_STATE, leader=broker_id)


def test_a_new_coordinator_writes_all_markers_of_what_was_decided_again(tmp_path: Path) -> None:
    """T7: also to partitions that had theirs, because no record says so."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *pair = await transactions.init()
            await transactions.add((pair[0], pair[1]), 0, 1)
            await transactions.end((pair[0], pair[1]), commit=True)
            (ending,) = transactions.markers[1].endings
            transactions.coordinator().partitions_ended(ending, [("t", 0)])
            assert [each.partitions for each in transactions.describe().topics] == [[1]]
            lead(cluster, 2)
            await transactions.ready(2)
            assert transactions.markers[1].forgotten == [0]
            (again,) = transactions.markers[2].endings
            assert again.partitions == ending.partitions
            assert again.marker == ending.marker._replace(
                coordinator_epoch=ending.marker.coordinator_epoch + 1
            )
            assert [each.partitions for each in transactions.describe(broker_id=2).topics] == [
                [0, 1]
            ]
            # What the coordinator before has still under way moves nothing here or there.
            transactions.coordinator().partitions_ended(ending, ending.partitions)
            assert transactions.describe().error_code == ErrorCode.NOT_COORDINATOR
            transactions.markers[2].finish()
            await transactions.until_state("CompleteCommit", broker_id=2)

    run(story())


def test_who_goes_on_for_a_killed_process_leaves_its_markers_to_the_next_coordinator(
    tmp_path: Path,
) -> None:
    """One of them may still be on its way, and end what follows too (seed 1795721299)."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *pair = await transactions.init()
            await transactions.add((pair[0], pair[1]), 0, 1)
            await transactions.end((pair[0], pair[1]), commit=True)
            (ending,) = transactions.markers[1].endings
            followed = cluster.partition(2, TRANSACTION_STATE)
            followed.resumed_epoch = followed.leader_epoch + 1
            lead(cluster, 2)
            await transactions.ready(2)
            assert transactions.markers[2].endings == []
            described = transactions.describe(broker_id=2)
            assert described.transaction_state == "PrepareCommit"
            assert [each.partitions for each in described.topics] == [[0, 1]]
            lead(cluster, 3)
            await transactions.ready(3)
            (again,) = transactions.markers[3].endings
            assert again.partitions == ending.partitions
            transactions.markers[3].finish()
            await transactions.until_state("CompleteCommit", broker_id=3)

    run(story())


def test_an_open_transaction_goes_on_with_another_coordinator(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, producer_id, epoch = await transactions.init()
            pair = (producer_id, epoch)
            await transactions.add(pair, 0)
            before = transactions.describe()
            lead(cluster, 2)
            await transactions.ready(2)
            described = transactions.describe(broker_id=2)
            assert described.transaction_start_time_ms == before.transaction_start_time_ms
            assert await transactions.add(pair, 1, broker_id=2) is NONE
            end = await transactions.end(pair, commit=False, version=4, broker_id=2)
            assert end == (NONE, -1, -1)
            (ending,) = transactions.markers[2].endings
            assert ending.partitions == {("t", 0), ("t", 1)}

    run(story())


def test_nothing_is_answered_before_the_replicas_have_it_or_by_a_coordinator_of_before(
    tmp_path: Path,
) -> None:
    """R20: the record may yet be committed, but not as what this coordinator has decided."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *pair = await transactions.init()
            await transactions.add((pair[0], pair[1]), 0)
            await cluster.stop(3)
            deciding = transactions.call(EndTxnRequest("x", pair[0], pair[1], True), 5)
            creating = transactions.call(InitProducerIdRequest("new", 1_000), 5)
            other = cluster.partition(2, TRANSACTION_STATE)
            end = cluster.partition(1, TRANSACTION_STATE).log_end_offset
            await cluster.until(lambda: other.log_end_offset == end + 2)
            assert (deciding.reply, creating.reply) == (None, None)
            assert transactions.state() == "Ongoing"
            assert transactions.state("new") == ""
            assert transactions.markers[1].endings == []
            lead(cluster, 2)
            await cluster.until(lambda: deciding.reply and creating.reply)
            for call in (deciding, creating):
                assert call.reply.error_code == ErrorCode.NOT_COORDINATOR
            assert transactions.markers[1].endings == []
            cluster.change(TRANSACTION_STATE, isr=(1, 2))
            await transactions.ready(2)
            # It was replicated after all, so it is decided, by whoever coordinates now.
            assert transactions.state(broker_id=2) == "PrepareCommit"
            assert len(transactions.markers[2].endings) == 1

    run(story())


def test_while_ids_are_loaded_and_where_others_lead_everybody_is_told_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *rest = await transactions.init()
            pair = (rest[0], rest[1])

            async def codes(broker_id: int) -> set[ErrorCode]:
                described = transactions.describe(broker_id=broker_id)
                return {
                    (await transactions.init(broker_id=broker_id))[0],
                    await transactions.add(pair, 0, broker_id=broker_id),
                    (await transactions.end(pair, commit=True, broker_id=broker_id))[0],
                    ErrorCode(described.error_code),
                }

            assert await codes(2) == {ErrorCode.NOT_COORDINATOR}
            # Without the others the high watermark of broker 2 is not known.
            await cluster.stop(3)
            await cluster.stop(1)
            lead(cluster, 2)
            await cluster.until(lambda: bool(transactions.coordinator(2).runtime.shards))
            assert await codes(2) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
            listed = transactions.call(ListTransactionsRequest(), 2, broker_id=2).reply
            assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            cluster.change(TRANSACTION_STATE, isr=(2,))
            await transactions.ready(2)
            assert await transactions.add(pair, 0, broker_id=2) is NONE

    run(story())


def test_too_few_replicas_are_told_and_nothing_has_changed(tmp_path: Path) -> None:
    """KAFKA-9666: the epoch does not creep."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster, min_insync_replicas=2)
            await transactions.ready()
            _, producer_id, epoch = await transactions.init()
            await transactions.add((producer_id, epoch), 0)
            cluster.change(TRANSACTION_STATE, isr=(1,))
            for _ in range(5):
                code, *_ = await transactions.init()
                assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            cluster.change(TRANSACTION_STATE, isr=(1, 2, 3))
            assert (await transactions.init())[0] is CONCURRENT
            transactions.markers[1].finish()
            await transactions.until_state("CompleteAbort")
            assert await transactions.init() == (NONE, producer_id, epoch + 2)

    run(story())


def test_an_end_whose_completion_cannot_be_written_is_complete_when_it_can(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster, min_insync_replicas=2)
            await transactions.ready()
            _, *rest = await transactions.init()
            pair = (rest[0], rest[1])
            await transactions.add(pair, 0)
            await transactions.end(pair, commit=True)
            cluster.change(TRANSACTION_STATE, isr=(1,))
            end = cluster.partition(1, TRANSACTION_STATE).log_end_offset
            transactions.markers[1].finish()
            transaction = transactions.coordinator().transactions["x"]
            await cluster.until(lambda: transaction.scheduled_ms is not None)
            assert cluster.partition(1, TRANSACTION_STATE).log_end_offset == end
            assert (await transactions.init())[0] is CONCURRENT
            cluster.change(TRANSACTION_STATE, isr=(1, 2, 3))
            await transactions.until_state("CompleteCommit")
            assert cluster.partition(1, TRANSACTION_STATE).log_end_offset == end + 1

    run(story())


def test_markers_may_be_written_before_begin_returns(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            transactions.markers[1].is_prompt = True
            _, producer_id, epoch = await transactions.init()
            for _ in range(3):
                assert await transactions.add((producer_id, epoch), 0) is NONE
                code, producer_id, epoch = await transactions.end((producer_id, epoch), commit=True)
                assert code is NONE
                await transactions.until_state("CompleteCommit")
            assert [each.marker.producer_epoch for each in transactions.markers[1].begun] == [
                1,
                2,
                3,
            ]

    run(story())


def test_a_timed_out_transaction_is_aborted_and_its_producer_fenced(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *rest = await transactions.init(timeout_ms=1)
            pair = (rest[0], rest[1])
            _, *rest = await transactions.init("patient", timeout_ms=900_000)
            await transactions.add(pair, 0)
            await transactions.add((rest[0], rest[1]), 0, transactional_id="patient")
            await asyncio.sleep(0.005)
            await transactions.expiry().abort_timed_out()
            await transactions.until_state("PrepareAbort")
            assert transactions.state("patient") == "Ongoing"
            (ending,) = transactions.markers[1].endings
            assert ending.marker[:2] == (pair[0], pair[1] + 1)
            transactions.markers[1].finish()
            await transactions.until_state("CompleteAbort")
            code, *_ = await transactions.end(pair, commit=True, version=4)
            assert code is ErrorCode.PRODUCER_FENCED

    run(story())


def test_a_coordinator_that_was_stopped_aborts_nothing_before_it_has_heard_its_clients(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *rest = await transactions.init(timeout_ms=1)
            await transactions.add((rest[0], rest[1]), 0)
            await asyncio.sleep(0.005)
            wake_check = cluster.members[1].broker.wake_check
            wake_check.go_on()
            await transactions.expiry().abort_timed_out()
            (transaction,) = transactions.coordinator().transactions.values()
            assert not transaction.machine.is_busy
            await cluster.until(lambda: not wake_check.stands_still())
            await transactions.expiry().abort_timed_out()
            await transactions.until_state("PrepareAbort")

    run(story())


def test_an_id_that_nobody_uses_is_forgotten_here_and_in_the_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, transactional_id_expiration_ms="1") as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *rest = await transactions.init()
            await transactions.init("open")
            pair = (rest[0], rest[1])
            await transactions.add((pair[0] + 1, 0), 0, transactional_id="open")
            await asyncio.sleep(0.005)
            await transactions.expiry().remove_expired()
            await cluster.until(lambda: "x" not in transactions.coordinator().transactions)
            assert transactions.describe().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            assert transactions.state("open") == "Ongoing"
            assert records_of(cluster)[-1].value is None
            assert await transactions.add(pair, 0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            await cluster.stop(1)
            await cluster.start(1)
            transactions.equip(1)
            await transactions.ready()
            assert set(transactions.coordinator().transactions) == {"open"}
            assert (await transactions.init())[2] == 0

    run(story())


def test_what_is_in_memory_is_what_the_log_gives(tmp_path: Path) -> None:
    """R22: after each kind of record."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *rest = await transactions.init()
            pair = (rest[0], rest[1])
            for step in range(4):
                if step == 1:
                    await transactions.add(pair, 0, 2)
                elif step == 2:
                    await transactions.end(pair, commit=True)
                elif step == 3:
                    transactions.markers[1].finish()
                    await transactions.until_state("CompleteCommit")
                kept = transactions.coordinator().transactions["x"].machine.metadata
                newest = records_of(cluster)[-1]
                assert newest.key == encode_key("x")
                assert newest.value is not None
                assert decode_value(newest.value) == kept

    run(story())


def test_records_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            await transactions.init()
            partition = cluster.partition(1, TRANSACTION_STATE)
            bodies = [
                encode_body(b"", b"?"),
                encode_body(b"\0\7later", b"?"),
                encode_body(encode_key("cut"), b"\0\1\0"),
                encode_body(encode_key("later"), b"\0\7?"),
            ]
            partition.append_as_leader(
                memoryview(build_batch(bodies, timestamp_ms=1)),
                required_acks=ALL_IN_SYNC,
                now_ms=1,
                has_keys=True,
            )
            await cluster.stop(1)
            await cluster.start(1)
            transactions.equip(1)
            await transactions.ready()
            assert set(transactions.coordinator().transactions) == {"x"}

    run(story())


def test_a_log_that_cannot_be_read_is_not_served_as_an_empty_one(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            await transactions.init()
            await cluster.stop(1, clean=True)
            path = tmp_path / f"broker-1/{TRANSACTION_STATE}-0/{0:020d}.log"
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
            await cluster.start(1)
            transactions.equip(1)
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            await cluster.until(lambda: transactions.describe().error_code == unavailable)
            assert (await transactions.init())[0] is unavailable
            listed = transactions.call(ListTransactionsRequest(), 2).reply
            assert listed.error_code == unavailable

    run(story())


def test_who_cannot_read_the_log_leaves_it_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else clients would be told for ever that the coordinator is not available."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *pair = await transactions.init()
            end = cluster.partition(1, TRANSACTION_STATE).log_end_offset
            for broker_id in (2, 3):
                replica = cluster.partition(broker_id, TRANSACTION_STATE)
                await cluster.until(partial(lambda replica: replica.log_end_offset == end, replica))

            def fail(piece: object) -> bytes:
                raise OSError(errno.EIO, "input/output error")

            failed = cluster.members[2].broker.replicas.failed
            with monkeypatch.context() as patch:
                patch.setattr(loading, "_read_slice", fail)
                lead(cluster, 2)
                await cluster.until(lambda: (TRANSACTION_STATE, 0) in failed)
            assert transactions.coordinator(2).runtime.shards == {}
            assert transactions.describe(broker_id=2).error_code == ErrorCode.NOT_COORDINATOR
            lead(cluster, 3)
            cluster.change(TRANSACTION_STATE, isr=(1, 3))
            await transactions.ready(3)
            assert await transactions.add((pair[0], pair[1]), 0, broker_id=3) is NONE

    run(story())


def test_a_partition_holds_so_many_ids_and_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *rest = await transactions.init()
            ids = transactions.coordinator().runtime.shards[0].machine
            for number in range(TRANSACTIONAL_IDS_PER_SHARD_MAX - 1):
                ids.add(f"id-{number}")
            code, *_ = await transactions.init("one more")
            assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await transactions.add((rest[0], rest[1]), 0) is NONE

    run(story())


def test_a_partition_holds_long_ids_of_so_many_bytes_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a few hundred thousand would take the memory of each coordinator in turn."""
    monkeypatch.setattr(coordinator, "TRANSACTIONAL_ID_BYTES_PER_SHARD_MAX", 50)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1, transactional_id_expiration_ms="1") as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            ids = transactions.coordinator().runtime.shards[0].machine
            for name, code in (
                ("a" * 30, NONE),
                ("ä" * 10, NONE),
                ("c", ErrorCode.COORDINATOR_NOT_AVAILABLE),
            ):
                assert (await transactions.init(name))[0] is code
            assert ids.id_bytes == 50
            await asyncio.sleep(0.005)
            await transactions.expiry().remove_expired()
            await cluster.until(lambda: not ids.by_id)
            assert ids.id_bytes == 0
            assert (await transactions.init("c"))[0] is NONE
            await cluster.stop(1)
            await cluster.start(1)
            transactions.equip(1)
            await transactions.ready()
            assert transactions.coordinator().runtime.shards[0].machine.id_bytes == 1

    run(story())


def test_a_transaction_that_is_let_in_can_be_ended(tmp_path: Path) -> None:
    """Its last record is longer: it names the version of the end, and maybe another producer."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *first = await transactions.init("id-99")
            log = cluster.partition(1, TRANSACTION_STATE).log
            config, begin = log.config, log.size
            await transactions.add((first[0], first[1]), 0, transactional_id="id-99")
            size = log.size - begin
            codes = set()
            for room in range(32):
                log.reconfigure(replace(config, max_message_bytes=size + room))
                name = f"id-{room:02}"
                _, producer_id, _ = await transactions.init(name, timeout_ms=1)
                machine = transactions.coordinator().transactions[name].machine
                machine.metadata = machine.metadata._replace(producer_epoch=CLIENT_EPOCH_MAX)
                pair = (producer_id, CLIENT_EPOCH_MAX)
                code = await transactions.add(pair, 0, transactional_id=name)
                codes.add(code)
                await asyncio.sleep(0.002)
                await transactions.expiry().abort_timed_out()
                expected = "PrepareAbort" if code is NONE else "Empty"
                shown = partial(transactions.state, name)
                await cluster.until(
                    partial(lambda shown, wanted: shown() == wanted, shown, expected)
                )
            assert codes == {NONE, ErrorCode.UNKNOWN_SERVER_ERROR}

    run(story())


def test_large_transactions_are_loaded_one_by_one(tmp_path: Path) -> None:
    """Each takes milliseconds, and everybody else waits for a step of the load."""

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            small = TransactionMetadata(TransactionState.PREPARE_ABORT, 1, 0, 1_000, start_ms=1)
            large = small._replace(partitions=frozenset(("t", index) for index in range(5_000)))
            for metadata, count, steps in ((small, 150, 0), (small, 1_000, 2), (large, 3, 3)):
                ids = ShardTransactions(
                    transactions.coordinator().runtime.shards[0], transactions.coordinator()
                )
                value = encode_value(metadata)
                records = {encode_key(f"{steps}-{number}"): value for number in range(count)}
                assert steps <= len(list(ids.replay(records))) <= 2 * steps + 1
                assert steps <= len(list(ids.begin())) <= 2 * steps + 1
                assert len(ids.by_id) == count

    run(story())


def test_an_id_whose_first_record_fails_takes_no_place(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster, min_insync_replicas=2)
            await transactions.ready()
            cluster.change(TRANSACTION_STATE, isr=(1,))
            code, *_ = await transactions.init()
            assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert transactions.coordinator().transactions == {}
            assert transactions.coordinator().runtime.shards[0].machine.by_id == {}

    run(story())


def test_without_producer_ids_new_producers_ask_again_and_more_are_asked_for(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            transactions.producer_ids.is_empty = True
            code, *_ = await transactions.init()
            assert code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert transactions.producer_ids.refills == 1
            assert transactions.coordinator().transactions == {}
            transactions.producer_ids.is_empty = False
            assert (await transactions.init())[0] is NONE

    run(story())


def test_the_decision_of_a_client_that_hung_up_stands(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *pair = await transactions.init()
            await transactions.add((pair[0], pair[1]), 0)
            call = transactions.call(EndTxnRequest("x", pair[0], pair[1], True), 5)
            call.disconnect()
            await transactions.until_state("PrepareCommit")
            assert (call.replies, len(transactions.markers[1].endings)) == (0, 1)

    run(story())
