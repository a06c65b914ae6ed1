"""Members of consumer groups in processes of their own: commands, and Python's to be killed."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from group_member import (
    CHOSEN_BY_THE_BROKER,
    COMMAND_TIMEOUT_S,
    Event,
    Found,
    Membership,
    Place,
)

from fairlead_bench.peers.java_tools import JavaTools

END_TIMEOUT_S = 60
JAVA_ASSIGNORS = {
    name: f"org.apache.kafka.clients.consumer.{class_name}"
    for name, class_name in (
        ("range", "RangeAssignor"),
        ("roundrobin", "RoundRobinAssignor"),
        ("sticky", "StickyAssignor"),
        ("cooperative-sticky", "CooperativeStickyAssignor"),
    )
}


class MemberProcess:
    """Runs a command and understands its lines: to be watched as a GroupMember is."""

    def __init__(self, command: Sequence[str], **variables: str) -> None:
        self._command = list(command)
        self._environment = os.environ | variables
        self.found: list[Found] = []
        self.events: list[Event] = []
        self.errors: list[str] = []
        self.said: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []
        self._is_closing = False

    def start(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for stream, take in (
            (self._process.stdout, self.take_output),
            (self._process.stderr, self.take_message),
        ):
            self._readers.append(threading.Thread(target=self._read, args=(stream, take)))
            self._readers[-1].start()
        return self

    @staticmethod
    def _read(stream, take) -> None:  # type: ignore[no-untyped-def]
        with stream:
            for line in stream:
                take(line.decode(errors="replace").rstrip("\n"))

    @property
    def assigned(self) -> frozenset[Place]:
        held: frozenset[Place] = frozenset()
        for event in tuple(self.events):
            held = held | event.places if event.kind == "assigned" else held - event.places
        return held

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in tuple(self.found)]

    @property
    def last_error(self) -> str:
        return self.errors[-1] if self.errors else ""

    def take_output(self, line: str) -> None:
        said = json.loads(line)
        if "found" in said:
            topic, partition, offset, value = said["found"]
            self.found.append(Found(topic, partition, offset, value.encode()))
        elif "event" in said:
            places = frozenset((topic, partition) for topic, partition in said["places"])
            self.events.append(Event(said["event"], places))
        else:
            self.errors.append(said["error"])

    def take_message(self, line: str) -> None:
        self.said.append(line)

    def kill(self) -> None:
        """kill -9: it says goodbye to nobody."""
        assert self._process is not None
        self._process.kill()
        self._finish()

    def begin_close(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def close(self) -> None:
        """Ends it as Ctrl-C or a service manager does: it leaves its group."""
        if self._process is None:
            return
        self.begin_close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        self.kill()

    def _finish(self) -> None:
        assert self._process is not None
        self._process.wait(END_TIMEOUT_S)
        assert self._process.stdin is not None
        self._process.stdin.close()
        for reader in self._readers:
            reader.join(END_TIMEOUT_S)


class RefusedError(Exception):
    """What the member's client raised there; only its name has come here."""


class LibraryProcess(MemberProcess):
    """One of the Python clients' members, in a process that can be killed. It can be asked, too.

    The process ends with its standard input, where it reads its commands. Its answers are lines
    among what it says.
    """

    def __init__(self, name: str, bootstrap: str, membership: Membership) -> None:
        program = Path(__file__).with_name("library_members.py")
        arguments = (name, bootstrap, json.dumps(asdict(membership)))
        # Where PYTHONSAFEPATH is set Python does not look for modules beside a program.
        command = [sys.executable, str(program), *arguments]
        super().__init__(command, PYTHONPATH=str(program.parent))
        self.name, self.membership = name, membership
        self._asked: list[Future[Any]] = []

    def take_output(self, line: str) -> None:
        said = json.loads(line)
        if "answer" not in said:
            super().take_output(line)
        elif "refused" in said:
            self._asked[said["answer"]].set_exception(RefusedError(said["refused"]))
        else:
            self._asked[said["answer"]].set_result(said["value"])

    def begin_close(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    def stall(self) -> None:
        """The application has stopped polling, until `wake`; a poll under way has ended."""
        self._ask("stall").result(COMMAND_TIMEOUT_S)

    def wake(self) -> None:
        self._ask("wake").result(COMMAND_TIMEOUT_S)

    def commit(self, offsets: Mapping[Place, int], note: str = "") -> None:
        """Waits until it is done; raises RefusedError."""
        self._ask("commit", as_rows(offsets), note).result(COMMAND_TIMEOUT_S)

    def commit_later(self, offsets: Mapping[Place, int]) -> Future[str]:
        return self._ask("commit_later", as_rows(offsets))

    def committed(self, place: Place) -> tuple[int, str] | None:
        """Offset and metadata."""
        found = self._ask("committed", place).result(COMMAND_TIMEOUT_S)
        return None if found is None else (found[0], found[1])

    def seek(self, place: Place, offset: int) -> None:
        self._ask("seek", place, offset).result(COMMAND_TIMEOUT_S)

    def seek_to_beginning(self, place: Place) -> None:
        self._ask("seek_to_beginning", place).result(COMMAND_TIMEOUT_S)

    def offset_at(self, place: Place, timestamp_ms: int) -> int:
        return int(self._ask("offset_at", place, timestamp_ms).result(COMMAND_TIMEOUT_S))

    def name_error(self, error: Exception) -> str:
        return str(error.args[0]) if isinstance(error, RefusedError) else repr(error)

    def _ask(self, what: str, *arguments: Any) -> Future[Any]:
        """One command after the other, each answered before the next is read."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._asked.append(Future())
        command = [len(self._asked) - 1, what, *arguments]
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        return self._asked[-1]


def as_rows(offsets: Mapping[Place, int]) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for (topic, partition), offset in offsets.items()]


class KcatMember(MemberProcess):
    """`kcat -G`: says its assignment on standard error."""

    name = "kcat"
    assignors = ("range", "roundrobin", "cooperative-sticky")
    GAVE_UP = "brokers are down: terminating"
    TOLD = re.compile(r"% Group .* rebalanced .*: (assigned|revoked): ?(.*)")
    PLACE = re.compile(r"(\S+) \[(\d+)\]")

    def __init__(self, bootstrap: str, membership: Membership) -> None:
        wish = membership
        settings = {
            "auto.offset.reset": wish.reset,
            "partition.assignment.strategy": wish.assignor,
            "enable.auto.commit": str(bool(wish.auto_commit_ms)).lower(),
            "auto.commit.interval.ms": wish.auto_commit_ms or 5_000,
            "session.timeout.ms": wish.session_ms,
            "heartbeat.interval.ms": wish.heartbeat_ms,
            "topic.metadata.refresh.interval.ms": wish.metadata_age_ms,
            "fetch.wait.max.ms": 100,
        }
        if wish.protocol == "consumer":
            settings["group.protocol"] = wish.protocol
            for name in CHOSEN_BY_THE_BROKER:
                del settings[name]
        if wish.instance:
            settings["group.instance.id"] = wish.instance
        options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        topics = [f"^{wish.pattern}"] if wish.pattern else wish.topics
        kcat = shutil.which("kcat") or "kcat"
        command = [kcat, "-b", bootstrap, *options, "-u", "-f", "%t %p %o %s\\n"]
        super().__init__([*command, "-G", wish.group, *topics])

    def take_output(self, line: str) -> None:
        topic, partition, offset, value = line.split(" ", 3)
        self.found.append(Found(topic, int(partition), int(offset), value.encode()))

    def take_message(self, line: str) -> None:
        super().take_message(line)
        told = self.TOLD.match(line)
        if told is not None:
            places = [(topic, int(index)) for topic, index in self.PLACE.findall(told.group(2))]
            self.events.append(Event(told.group(1), frozenset(places)))
        elif line.endswith(self.GAVE_UP):
            # kcat ends when every connection that it happens to have is down at once, as one is
            # enough for after a few kills: a supervisor starts it again, here too.
            threading.Thread(target=self._start_again, daemon=True).start()
        elif "ERROR" in line and "Local: " not in line:
            # librdkafka's own ("Local") are for information: it goes on by itself.
            self.errors.append(line)

    def begin_close(self) -> None:
        self._is_closing = True
        super().begin_close()

    def _start_again(self) -> None:
        process = self._process
        assert process is not None
        process.wait(END_TIMEOUT_S)
        if not self._is_closing:
            self.start()


class JavaMember(MemberProcess):
    """`kafka-console-consumer` in a group. It never says what it was assigned."""

    name = "Java console"
    assignors = tuple(JAVA_ASSIGNORS)

    def __init__(self, tools: JavaTools, membership: Membership) -> None:
        wish = membership
        settings = {
            "group.id": wish.group,
            "auto.offset.reset": wish.reset,
            "partition.assignment.strategy": JAVA_ASSIGNORS[wish.assignor],
            "enable.auto.commit": str(bool(wish.auto_commit_ms)).lower(),
            "auto.commit.interval.ms": wish.auto_commit_ms or 5_000,
            "session.timeout.ms": wish.session_ms,
            "heartbeat.interval.ms": wish.heartbeat_ms,
            "metadata.max.age.ms": wish.metadata_age_ms,
        }
        if wish.instance:
            settings["group.instance.id"] = wish.instance
        options = [
            part
            for name, value in settings.items()
            for part in ("--command-property", f"{name}={value}")
        ]
        for name in ("partition", "offset", "value"):
            options += ["--formatter-property", f"print.{name}=true"]
        topics = ("--include", wish.pattern) if wish.pattern else ("--topic", wish.topics[0])
        super().__init__(tools.command("kafka-console-consumer", *topics, *options))
        self._topic = wish.pattern or wish.topics[0]

    def take_output(self, line: str) -> None:
        partition, offset, value = line.split("\t")
        number, at = (int(part.partition(":")[2]) for part in (partition, offset))
        self.found.append(Found(self._topic, number, at, value.encode()))

    def take_message(self, line: str) -> None:
        super().take_message(line)
        if "ERROR" in line or "Exception" in line:
            self.errors.append(line)
