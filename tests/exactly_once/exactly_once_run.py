"""One run: applications read an input and write outputs during faults; then the verdict."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from applications import ALL, Application, Command, Trial
from checker import Findings, Found, check_output, compare
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from fault_driver import FaultDriver, LiveCluster
from fault_plan import plan_faults
from input_feeder import InputFeeder
from output_reader import LiveReader, describe_ends, read_to_end
from partition_mover import PartitionMover
from segment_files import DamagedError, Transactions, decide, read_partition

PARTITIONS: Final = 3
REPLICAS: Final = 3
WARM_COUNT: Final = 30
PROGRESS_TIMEOUT_S: Final = 120
REPLICATION_TIMEOUT_S: Final = 30
ADMIN_TIMEOUT_S: Final = 60
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.replication.factor": str(REPLICAS),
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": str(REPLICAS),
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.min.isr": "2",
    # An open transaction of a dead client is aborted soon after its time-out.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class StuckError(Exception):
    """Something made no progress; the text says what."""


class Verdict(NamedTuple):
    """The result of one application."""

    findings: Findings
    records_count: int
    committed_count: int
    """Transactions, summed over the output's partitions."""
    aborted_count: int
    starts_count: int

    def __str__(self) -> str:
        return (
            f"{self.records_count} records in {self.committed_count} transactions, "
            f"{self.aborted_count} aborted, {self.starts_count} starts: {self.findings}"
        )


@dataclass
class ExactlyOnceRun:
    """Call `run` once. `commands` has the applications that take part."""

    cluster: LiveCluster
    commands: Mapping[str, Command]
    seed: int
    folder: Path
    say: Callable[[str], None]
    is_moving: bool = False
    """Whether partitions move during the faults."""

    def run(self) -> dict[str, Verdict]:
        stem = f"run-{self.seed}-{time.monotonic_ns()}"
        source = f"{stem}-input"
        self._applications = [
            Application(
                ALL[name],
                command,
                Trial(
                    self.cluster.bootstrap,
                    source,
                    f"{stem}-{name}-output",
                    f"{stem}-{name}",
                    self.folder / name,
                ),
            )
            for name, command in self.commands.items()
        ]
        outputs = [each.trial.output for each in self._applications]
        create_topics(self.cluster.bootstrap, [source, *outputs])
        self._mover = PartitionMover(self.cluster, stem, self.seed, self.say)
        self._driver = FaultDriver(
            self.cluster, self._applications, self.seed, self.say, self._mover
        )
        self._driver.wait_until_whole()
        self._feeder = InputFeeder(self.cluster.bootstrap, source, self.seed)
        self._reader = LiveReader(self.cluster.bootstrap, outputs, PARTITIONS)
        try:
            self._go_through_faults()
        finally:
            self._feeder.finish()
            self._mover.finish()
            for application in self._applications:
                application.stop()
            self._reader.finish()
        return self._judge()

    def _go_through_faults(self) -> None:
        self._reader.start()
        self._feeder.start()
        for application in self._applications:
            application.start()
        self._wait(lambda each: len(self._found(each)) < WARM_COUNT, "has written nothing yet")
        if self.is_moving:
            self._mover.start()
        self._driver.carry_out(plan_faults(self.seed))
        self._feeder.finish()
        self._mover.finish()
        if errors := self._mover.errors:
            raise StuckError(f"what was to move: {errors[:3]}")
        if self.is_moving and not self._mover.moves_count:
            raise StuckError("what was to move: no move was accepted")
        if errors := self._feeder.errors:
            raise StuckError(f"the input: {errors[:3]}")
        self._expected = {
            each.name: each.program.expected(self._feeder.inputs) for each in self._applications
        }
        self._wait(self._lacks_some, "lacks some")

    def _found(self, application: Application) -> list[Found]:
        return self._reader.found[application.trial.output]

    def _lacks_some(self, application: Application) -> bool:
        expected, found = self._expected[application.name], list(self._found(application))
        if len(found) < sum(map(len, expected.values())):
            return True
        findings = Findings()
        check_output(expected, sorted(found), findings)
        return bool(findings.lost)

    def _wait(self, is_waited_for: Callable[[Application], bool], what: str) -> None:
        """Wait until this is true for no application; StuckError if none makes progress."""
        waiting, seen_count, deadline = self._applications, -1, 0.0
        while waiting := [each for each in waiting if is_waited_for(each)]:
            if self._reader.errors:
                raise StuckError(f"the reader: {self._reader.errors}")
            count = sum(len(self._found(each)) for each in waiting)
            if count != seen_count:
                seen_count, deadline = count, time.monotonic() + PROGRESS_TIMEOUT_S
            if time.monotonic() > deadline:
                state = "; ".join(map(self._describe, waiting))
                raise StuckError(
                    f"{what}, and nothing has come for {PROGRESS_TIMEOUT_S} s: {state}"
                )
            self._driver.tend_for(0.1)

    def _describe(self, application: Application) -> str:
        found, output = self._found(application), application.trial.output
        ends = describe_ends(self.cluster.bootstrap, output, PARTITIONS)
        read = [
            max((f.offset for f in found if f.partition == p), default=-1)
            for p in range(PARTITIONS)
        ]
        lacking = uncommitted_input(application.trial, len(self._feeder.inputs))
        said = application.last_words()
        return f"{application.name}: read to {read}, {ends}, {lacking}; {said}"

    def _judge(self) -> dict[str, Verdict]:
        """Check all outputs after the applications' end; time-outs end open transactions."""
        self._driver.wait_until_whole()
        outputs = [each.trial.output for each in self._applications]
        final = read_to_end(
            self.cluster.bootstrap, outputs, PARTITIONS, timeout_s=PROGRESS_TIMEOUT_S
        )
        verdicts = {}
        for each in self._applications:
            findings, output = Findings(), each.trial.output
            found = final[output]
            check_output(self._expected[each.name], found, findings)
            compare(sorted(self._found(each)), found, "read live and at the end", findings)
            if each.program.begins_at_the_groups_offsets:
                findings.changed += uncommitted_input(each.trial, self._expected_end)
            logs = check_files(self.cluster, output, found, findings)
            verdicts[each.name] = Verdict(
                findings,
                len(found),
                sum(log.committed_count for log in logs),
                sum(log.aborted_count for log in logs),
                each.starts,
            )
        return verdicts

    @property
    def _expected_end(self) -> int:
        return len(self._feeder.inputs)


def create_topics(bootstrap: str, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = [
        NewTopic(name, PARTITIONS, REPLICAS, config={"min.insync.replicas": "2"}) for name in names
    ]
    for future in admin.create_topics(wanted).values():
        future.result(ADMIN_TIMEOUT_S)


def uncommitted_input(trial: Trial, count: int) -> list[str]:
    """Return a complaint unless the group's offsets, committed with the output, are at the end."""
    consumer: Any = Consumer(
        {"bootstrap.servers": trial.bootstrap, "group.id": trial.group, "log_level": 0}
    )
    places = [TopicPartition(trial.input, index) for index in range(PARTITIONS)]
    committed = consumer.committed(places, timeout=ADMIN_TIMEOUT_S)
    consumer.close()
    reached = sum(max(at.offset, 0) for at in committed)
    return [] if reached == count else [f"{reached} of {count} inputs are committed"]


def check_files(
    cluster: LiveCluster, topic: str, found: Sequence[Found], findings: Findings
) -> list[Transactions]:
    """Compare what was read with the files of all replicas; return the first replica's logs."""
    logs = []
    for partition in range(PARTITIONS):
        read = [each for each in found if each.partition == partition]
        replicas = [
            settled_log(cluster.log_directory_of(index), f"{topic}-{partition}", read)
            for index in range(len(cluster.ports))
        ]
        for index, log in enumerate(replicas):
            what = f"read and in the files of broker {cluster.broker_id(index)}"
            stored = [
                Found(partition, offset, key or b"", value or b"")
                for offset, key, value in log.committed
            ]
            compare(read, stored, what, findings)
            findings.changed += [f"{what}: {breach}" for breach in log.breaches]
            if log.open:
                findings.changed.append(f"{what}: transactions of {list(log.open)} are open")
        logs.append(replicas[0])
    return logs


def settled_log(directory: Path, name: str, read: Sequence[Found]) -> Transactions:
    """Return a replica's log when it has everything that was read: a follower may be behind."""
    deadline = time.monotonic() + REPLICATION_TIMEOUT_S
    while True:
        try:
            log = decide(read_partition(next(directory.rglob(name))))
            if not log.open and (not read or log.last_offset >= read[-1].offset):
                return log
        except DamagedError:
            log = None  # a batch is perhaps being written now
        if time.monotonic() > deadline:
            return log or decide(read_partition(next(directory.rglob(name))))
        time.sleep(0.1)
