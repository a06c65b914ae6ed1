"""How much all transactional ids together may make a coordinator hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from group_cluster import run
from replica_cluster import ReplicaCluster
from transaction_cluster import TransactionCluster

from fairlead_broker.limits import TRANSACTION_PARTITION_BYTES, TRANSACTIONAL_ID_OVERHEAD_BYTES
from fairlead_broker.transaction import transaction_memory
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

NONE = ErrorCode.NONE
FULL = ErrorCode.COORDINATOR_NOT_AVAILABLE
ID = TRANSACTIONAL_ID_OVERHEAD_BYTES + 1
PARTITION = TRANSACTION_PARTITION_BYTES


def test_partitions_and_ids_beyond_the_memory_are_refused_and_what_is_open_can_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each id has a bound of partitions, and each partition one of ids: they multiply."""
    monkeypatch.setattr(transaction_memory, "TRANSACTIONS_BYTES_MAX", 2 * ID + 3 * PARTITION)

    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            memory = transactions.coordinator().memory
            pairs = {}
            for name in "xy":
                code, *pair = await transactions.init(name)
                assert code is NONE
                pairs[name] = (pair[0], pair[1])
            assert memory.total_bytes == 2 * ID
            assert await transactions.add(pairs["x"], 0, 1) is NONE
            assert await transactions.add(pairs["y"], 2, 3, transactional_id="y") is FULL
            assert await transactions.add(pairs["y"], 2, transactional_id="y") is NONE
            assert memory.total_bytes == 2 * ID + 3 * PARTITION
            assert (await transactions.init("z"))[0] is FULL
            assert "z" not in transactions.coordinator().transactions
            assert await transactions.add(pairs["x"], 0, 1) is NONE, "nothing is added"
            assert await transactions.add(pairs["x"], 1, 2) is FULL
            fenced = (pairs["x"][0], pairs["x"][1] + 1)
            assert await transactions.add(fenced, 2) is ErrorCode.PRODUCER_FENCED
            assert (await transactions.end(pairs["x"], commit=True, version=4))[0] is NONE
            transactions.markers[1].finish()
            await transactions.until_state("CompleteCommit")
            assert memory.total_bytes == 2 * ID + PARTITION
            assert await transactions.add(pairs["y"], 3, transactional_id="y") is NONE

    run(story())


def test_memory_is_counted_anew_by_the_next_coordinator(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            _, *pair = await transactions.init()
            assert await transactions.add((pair[0], pair[1]), 0, 1) is NONE
            cluster.change("__transaction_state", leader=2)
            await transactions.ready(2)
            assert transactions.coordinator().memory.total_bytes == 0
            assert transactions.coordinator(2).memory.total_bytes == ID + 2 * PARTITION

    run(story())


def test_an_id_that_expires_gives_its_memory_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with ReplicaCluster(tmp_path, size=1) as cluster:
            transactions = TransactionCluster(cluster)
            await transactions.ready()
            assert (await transactions.init("a" * 1_000))[0] is NONE
            coordinator = transactions.coordinator()
            assert coordinator.memory.total_bytes == TRANSACTIONAL_ID_OVERHEAD_BYTES + 1_000
            (transaction,) = coordinator.transactions.values()
            coordinator.expire(transaction, expiration_ms=-1)
            await cluster.until(lambda: not coordinator.transactions)
            assert coordinator.memory.total_bytes == 0

    run(story())
