"""The checks after all faults have healed: everything works, and the whole history is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.disk_log import DiskLog, KeyedLog
from simulator.ensemble import Ensemble

if TYPE_CHECKING:
    from simulator.checker import Checker, PartitionKey, Record, Truth
    from simulator.clients import Producer
    from simulator.disk_log import AnyLog
    from simulator.world import World


def unsettled(world: World) -> str | None:
    """Return why the cluster is not whole yet; None if it is (liveness)."""
    problem = world.checker.topics.unsettled() or world.checker.moves.unsettled()
    if problem is not None:
        return problem
    if isinstance(world.store, Ensemble) and (problem := world.store.wrong_projection()):
        return problem
    for key in sorted(world.checker.truths):
        record = world.checker.truths[key].record
        problem = None if record is None else _unsettled_partition(world, key, record)
        if problem is not None:
            return problem
    for producer in world.producers:
        if not producer.is_done:
            return f"{producer.name} has not finished"
    if world.transactions is None:
        return None
    return world.transactions.unsettled() or world.checker.transactions.unsettled()


def _unsettled_partition(world: World, key: PartitionKey, record: Record) -> str | None:
    if record.leader < 0:
        return f"nobody leads: {record}"
    if set(record.isr) != set(record.replicas):
        return f"not all are in sync: {record}"
    logs = [world.brokers[replica].log(key) for replica in record.replicas]
    ends = [-1 if log is None else log.log_end_offset for log in logs]
    if len(set(ends)) > 1:
        return f"logs end at {ends}: {record}"
    leader = world.brokers[record.leader].running
    partition = None if leader is None else leader.partitions.get(key)
    if partition is None or partition.high_watermark != ends[0]:
        return f"not everything is committed: {record}, logs end at {ends[0]}"
    starts = [-1 if log is None else log.log_start_offset for log in logs]
    if min(starts) < partition.log_start_offset:
        return f"logs start at {starts}: {record}"
    return None


def check_history(checker: Checker) -> None:
    """Check that all acknowledged records are there, once, in order, and all replicas agree."""
    checker.transactions.check_history()
    for key in sorted(checker.truths):
        truth = checker.truths[key]
        record = truth.record
        if record is None:
            continue
        found = [checker.world.brokers[replica].log(key) for replica in record.replicas]
        logs: list[AnyLog] = [log for log in found if log is not None]
        if any(isinstance(log, KeyedLog) for log in logs):
            _check_compacted(checker, key, logs)
            continue
        if any(isinstance(log, DiskLog) for log in logs):
            _check_transactional(checker, key, logs)
            continue
        start = max(log.log_start_offset for log in logs)
        contents = [log.entries[max(start - log.base_offset, 0) :] for log in logs]
        if len(logs) != len(found) or any(content != contents[0] for content in contents):
            checker.fail("I7: the replicas of %s differ at the end", record)
        if not truth.is_forgiven:
            _check_partition(checker, key, _all_values(truth, logs[0]))


def _check_compacted(checker: Checker, key: PartitionKey, logs: list[AnyLog]) -> None:
    """Check that each replica, whatever its holes, gives a new consumer the newest of every key."""
    truth = checker.truths[key]
    if truth.is_forgiven:
        return
    for log in logs:
        assert isinstance(log, KeyedLog)
        checker.compaction.check_from_the_beginning(key, truth, log)
    _check_partition(checker, key, [entry.value for entry in truth.committed])


def _check_transactional(checker: Checker, key: PartitionKey, logs: list[AnyLog]) -> None:
    """Check that replicas have the same records and transactions, and lack nothing."""
    truth = checker.truths[key]
    start = max(log.log_start_offset for log in logs)
    contents = [{at: each for at, each in log.contents.items() if at >= start} for log in logs]  # type: ignore[union-attr]
    if any(content != contents[0] for content in contents):
        checker.fail("I7: the replicas of %s differ at the end", truth.record)
    for host in checker.world.brokers.values():
        partition = None if host.running is None else host.running.partitions.get(key)
        if partition is not None:
            checker.transactions.check_replica(partition)
    if not truth.is_forgiven:
        _check_partition(checker, key, [entry.value for entry in truth.committed])


def _all_values(truth: Truth, log: AnyLog) -> list[int]:
    """Return all values, including deleted ones, which the observer remembers."""
    gone = [entry.value for entry in truth.committed[: log.base_offset]]
    return gone + [entry.value for entry in log.entries]


def _check_partition(checker: Checker, key: PartitionKey, values: list[int]) -> None:
    places: dict[int, list[int]] = {}
    for offset, value in enumerate(values):
        places.setdefault(value, []).append(offset)
    for (at, value), offset in checker.acknowledged.items():
        if at == key and offset not in places.get(value, ()):
            checker.fail("value %d, acknowledged at %d, is lost", value, offset)
    for producer in checker.world.producers:
        if producer.key == key:
            _check_producer(checker, producer, places)


def _check_producer(checker: Checker, producer: Producer, places: dict[int, list[int]]) -> None:
    last = -1
    for value in producer.sent:
        found = places.get(value, [])
        if producer.is_idempotent and producer.acks == -1 and len(found) != 1:
            checker.fail("%s: value %d is there %d times", producer.name, value, len(found))
        is_sure = producer.is_idempotent or producer.acks != 1
        if not is_sure and producer.acknowledged.get(value) not in found:
            # If acknowledged records were lost, this is a copy that arrived late.
            continue
        if found and found[0] < last:
            checker.fail("%s: value %d comes before its predecessor", producer.name, value)
        last = found[0] if found else last
