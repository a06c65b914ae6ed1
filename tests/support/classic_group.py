"""A large group of librdkafka's consumers, in a process of its own that is ended by a kill.

Where members leave while others are given their partitions, one of librdkafka's calls can wait for
ever, and hold the interpreter's lock meanwhile: no limit of the tests' own process would end that.

As a program it reads values, one a line. It polls until every partition has delivered the value and
every member has partitions, and says when that was and what its members hold.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import TopicPartition

DEADLINE_S = 120.0
SPARE_S = 30.0
"""So much longer than its own deadline may an answer take to come here."""


class ClassicGroup:
    """The program, as the test that started it sees it."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, members: int, partitions: int
    ) -> None:
        command = [sys.executable, __file__, bootstrap, group, topic, str(members), str(partitions)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0)
        self.held: list[int] = []
        """The partitions of all members, as of the last answer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def read_until_all(self, value: bytes) -> float:
        """Until every partition has delivered this value, and every member has some."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(value + b"\n")
        line, end = b"", time.monotonic() + DEADLINE_S + SPARE_S
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the group says nothing any more"
            read = process.stdout.read(65_536)
            assert read, "the group has ended: it says why on standard error"
            line += read
        answer = json.loads(line)
        self.held = answer["held"]
        return float(answer["at"])


class Members:
    """All members in one thread: each is polled in turn."""

    def __init__(self, bootstrap: str, group: str, topic: str, count: int) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "log_level": 2,
        }
        self.assigned: dict[int, set[int]] = {}
        self._members = []
        for number in range(count):
            member = Consumer(settings)
            member.subscribe([topic], on_assign=self._note(number), on_revoke=self._forget(number))
            self._members.append(member)

    def _note(self, number: int) -> Callable[..., None]:
        def assigned(_: Consumer, places: list[TopicPartition]) -> None:
            self.assigned[number] = {place.partition for place in places}

        return assigned

    def _forget(self, number: int) -> Callable[..., Any]:
        return lambda *_: self.assigned.pop(number, None)

    def poll(self) -> list[tuple[int, bytes]]:
        """What each member has now: partition and value."""
        found = []
        for member in self._members:
            message = member.poll(0)
            if message is not None and message.error() is None:
                found.append((message.partition(), message.value()))
        return found

    def read_until_all(self, value: bytes, partitions: int) -> float:
        missing = set(range(partitions))
        deadline = time.monotonic() + DEADLINE_S
        # Whoever joins first may be given everything, and read it, before the others are there.
        while missing or len(self.assigned) < len(self._members):
            for partition, found in self.poll():
                if found == value:
                    missing.discard(partition)
            assert time.monotonic() < deadline, (
                f"{len(missing)} partitions deliver nothing, "
                f"{len(self.assigned)} of {len(self._members)} members have partitions"
            )
        return time.monotonic()


def main(bootstrap: str, group: str, topic: str, members: str, partitions: str) -> None:
    every = Members(bootstrap, group, topic, int(members))
    for line in sys.stdin.buffer:
        at = every.read_until_all(line.rstrip(b"\n"), int(partitions))
        held = sorted(partition for places in every.assigned.values() for partition in places)
        # The clock is the same one in all processes.
        print(json.dumps({"at": at, "held": held}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
