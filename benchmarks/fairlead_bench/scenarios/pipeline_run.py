"""A Spark job whose executors, tasks, driver and brokers die by a plan, until it ends by itself.

A driver that ended is restarted, as Kubernetes would do; so is a broker.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from fairlead_bench.peers.fairlead_cluster import FairleadCluster
from fairlead_bench.scenarios.pipeline_faults import BROKERS, Fault, Target
from fairlead_bench.scenarios.pipeline_job import (
    EXECUTOR,
    PARTITIONS,
    RESULT,
    SOURCE,
    say,
    start_driver,
)

DECISIONS: Final = "fairlead-spark-decisions"
TRANSACTIONS: Final = "__transaction_state"
LOOK_S: Final = 0.2
SAY_S: Final = 15.0
ANSWER_S: Final = 5.0
JOB_TIMEOUT_S: Final = 3600.0
RESTARTS_MAX: Final = 20
"""Of a driver: if it ends after each start, it will never be done."""
_Item = TypeVar("_Item")


class PipelineFailedError(Exception):
    """The job did not end; the text is the end of its driver's output."""


class SparkProcesses:
    """The processes of one start of a driver, by their session: some outlive their parents."""

    def __init__(self, driver: subprocess.Popen[bytes]) -> None:
        self._session = driver.pid

    def driver(self) -> list[psutil.Process]:
        """Return Python, the JVM, and their helpers: all but executors and their tasks."""
        others = set(self.executors()) | set(self._tasks_and_daemons())
        return [each for each in self.all() if each not in others]

    def executors(self) -> list[psutil.Process]:
        return [each for each in self.all() if EXECUTOR in command(each)]

    def tasks(self) -> list[psutil.Process]:
        """Return the workers that an executor's Python daemon has forked, which process rows."""
        executors = set(self.executors())
        return [each for each in self._tasks_and_daemons() if parent(each) not in executors]

    def all(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if os.getsid(process.pid) == self._session:
                    found.append(process)
            except ProcessLookupError:
                continue
        return found

    def _tasks_and_daemons(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for executor in self.executors():
            try:
                found += executor.children(recursive=True)
            except psutil.NoSuchProcess:
                continue
        return found


@dataclass
class FaultsDone:
    """The killed processes, for the report."""

    lines: list[str] = field(default_factory=list)
    restarts: int = 0
    """Of the driver, including those after it ended by itself."""


class PipelineRun:
    """One job during faults, on a cluster whose brokers are restarted."""

    def __init__(self, cluster: FairleadCluster, name: str, document: Path, records: int) -> None:
        """Start the driver of the job `document`, whose group is `name`; it reads `records`."""
        self._cluster, self._records = cluster, records
        self._document, self._log = document, document.with_suffix(".log")
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._group = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": name, "log_level": 0}
        )
        self._driver = start_driver(self._document, self._log, new_session=True)
        self._processes = SparkProcesses(self._driver)
        self._away: dict[int, float] = {}
        """Killed brokers, with the time of each one's restart."""
        self._done = 0
        self.faults = FaultsDone()

    def run(self, plan: Sequence[Fault]) -> None:
        """Run until the job has ended by itself; PipelineFailedError if it cannot."""
        waiting = list(plan)
        due_at: float | None = None
        deadline, said_at = time.monotonic() + JOB_TIMEOUT_S, time.monotonic()
        try:
            while not self._has_ended():
                now = time.monotonic()
                if now > deadline:
                    raise PipelineFailedError(f"not done in time:\n{self._last_words()}")
                self._start_brokers(now)
                self._look_at_progress()
                if waiting and due_at is None and self._done >= waiting[0].share * self._records:
                    due_at = now + waiting[0].delay_s
                if due_at is not None and now >= due_at and self._carry_out(waiting[0]):
                    waiting.pop(0)
                    due_at = None
                if now - said_at >= SAY_S:
                    said_at = now
                    say(f"{self._done:,} of {self._records:,} records are done")
                time.sleep(LOOK_S)
            if waiting:
                raise PipelineFailedError(f"the job ended before {len(waiting)} faults were due")
        finally:
            self._end()

    def lag(self) -> int:
        """Return how many records the job's group has not committed yet."""
        self._look_at_progress()
        return self._records - self._done

    def close(self) -> None:
        self._group.close()

    def _end(self) -> None:
        self._start_brokers(float("inf"))
        for process in self._processes.all():
            kill(process)
        self._driver.wait()

    def _has_ended(self) -> bool:
        """Restart the driver if it failed; tell whether the job has ended."""
        code = self._driver.poll()
        if code is None:
            return False
        if code == 0:
            return True
        if code != -signal.SIGKILL:
            say(f"the driver ended with {code}: {last_error(self._log)}")
        self.faults.restarts += 1
        if self.faults.restarts > RESTARTS_MAX:
            raise PipelineFailedError(f"the driver ends again and again:\n{self._last_words()}")
        self._driver = start_driver(self._document, self._log, new_session=True)
        self._processes = SparkProcesses(self._driver)
        return False

    def _start_brokers(self, now: float) -> None:
        for index, until in list(self._away.items()):
            if now >= until:
                self._cluster.start_broker(index)
                del self._away[index]

    def _look_at_progress(self) -> None:
        """Read the progress from the offsets of the job's group, as tools for lag do."""
        wanted = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
        try:
            found = self._group.committed(wanted, timeout=ANSWER_S)
        except KafkaException:
            return  # brokers are away; the next look tells
        self._done = max(self._done, sum(max(each.offset, 0) for each in found))

    def _carry_out(self, fault: Fault) -> bool:
        """Kill a process; return False if there is none to kill yet."""
        if fault.target in BROKERS:
            # Only one broker at a time: a leader needs two of three replicas to write.
            who = None if self._away else self._kill_broker(fault)
        else:
            who = self._kill_process(fault)
        if who is None:
            return False
        line = f"{fault.target.value} was killed: {who}"
        say(f"{self._done / self._records:.0%} done: {line}")
        self.faults.lines.append(line)
        return True

    def _kill_broker(self, fault: Fault) -> str | None:
        topic = {
            Target.SOURCE_LEADER: SOURCE,
            Target.RESULT_LEADER: RESULT,
            Target.DECISIONS_LEADER: DECISIONS,
            Target.COORDINATOR: TRANSACTIONS,
        }[fault.target]
        if not self._is_whole():
            return None
        try:
            metadata = self._admin.list_topics(topic, timeout=ANSWER_S).topics[topic]
        except KafkaException:
            return None
        partitions = sorted(metadata.partitions)
        if not partitions:
            return None
        partition = choose(partitions, fault.choice)
        leader = metadata.partitions[partition].leader
        if leader < 0:
            return None
        self._cluster.kill_broker(leader)
        self._away[leader] = time.monotonic() + fault.away_s
        return f"broker {leader}, which led {topic}-{partition}, for {fault.away_s:.1f} s"

    def _is_whole(self) -> bool:
        """Tell whether all replicas are in sync again after the last kill of a broker."""
        try:
            metadata = self._admin.list_topics(timeout=ANSWER_S)
        except KafkaException:
            return False
        return all(
            len(partition.isrs) == len(partition.replicas)
            for topic in metadata.topics.values()
            for partition in topic.partitions.values()
        )

    def _kill_process(self, fault: Fault) -> str | None:
        if fault.target is Target.DRIVER:
            victims = self._processes.driver()
        else:
            is_task = fault.target is Target.TASK
            found = self._processes.tasks() if is_task else self._processes.executors()
            victims = [choose(found, fault.choice)] if found else []
        for each in victims:
            kill(each)
        return f"{len(victims)} processes" if victims else None

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def choose(items: Sequence[_Item], choice: float) -> _Item:
    """Return the item at a share of the way from the first to the last."""
    return items[int(choice * len(items))]


def command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def parent(process: psutil.Process) -> psutil.Process | None:
    try:
        return process.parent()
    except psutil.Error:
        return None


def kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def last_error(log: Path) -> str:
    """Return the last line of a log that names an error."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if "Error: " in line), "no error told")
