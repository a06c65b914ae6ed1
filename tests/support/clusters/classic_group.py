"""A large group of librdkafka's consumers in a separate process, which ends by a kill.

If members leave while others get their partitions, a call of librdkafka can wait forever, and hold
the interpreter's lock meanwhile: no time-out in the tests' own process would end that.

As a program it reads values, one a line. It polls until every partition has delivered the value and
every member has partitions, and reports the time and the partitions of its members.
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
"""How much longer than the program's own deadline its answer may take."""


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
        """Wait until every partition has delivered this value, and every member has partitions."""
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
    """All members in one thread, which polls each in turn."""

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
        """Return the new records of all members: partition and value."""
        found = []
        for member in self._members:
            message = member.poll(0)
            if message is not None and message.error() is None:
                found.append((message.partition(), message.value()))
        return found

    def read_until_all(self, value: bytes, partitions: int) -> float:
        missing = set(range(partitions))
        deadline = time.monotonic() + DEADLINE_S
        # The first member may get all partitions, and read everything, before the others join.
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
        # All processes have the same clock.
        print(json.dumps({"at": at, "held": held}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
