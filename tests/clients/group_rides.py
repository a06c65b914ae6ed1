"""Groups that go on reading while brokers come and go, and what may be said of them afterwards.

One producer writes numbered records to one topic, evenly and once each, so that partition and
offset follow from the number. Groups of every client read them with automatic commits.
"""

import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from committed_offsets_log import CommitLog
from group_member import GroupMember, Place
from member_processes import MemberProcess
from rides import ConfluentRide, decode

PARTITIONS: Final = 6
PAUSE_S: Final = 0.2
LAST_ANSWER_TIMEOUT_S: Final = 60


class GroupLoad(ConfluentRide):
    """Writes; the groups are those who read."""

    name = "groups"
    partitions = PARTITIONS

    def start(self) -> None:
        self._producer.start()

    def finish(self) -> None:
        self._is_sending.clear()
        self._producer.join()


class GroupRide:
    """A group's members, and every record that they have read between them."""

    def __init__(self, name: str, group: str, members: Sequence[GroupMember | MemberProcess]):
        self.name, self.group, self.members = name, group, members
        self.numbers: set[int] = set()
        self.repeats_count = 0
        self.misplaced: list[str] = []
        self._taken = [0] * len(members)

    @property
    def errors(self) -> list[str]:
        return [error for member in self.members for error in member.errors]

    def said(self) -> list[str]:
        """For a message about what went wrong."""
        spoken = [m.said[-20:] for m in self.members if isinstance(m, MemberProcess)]
        return self.errors[:3] + [line for lines in spoken for line in lines]

    def missing(self, count: int) -> list[int]:
        """Which of the first numbers nobody has read yet."""
        self._take()
        if len(self.numbers) >= count:
            return []
        return sorted(set(range(count)) - self.numbers)

    def _take(self) -> None:
        for index, member in enumerate(self.members):
            for record in member.found[self._taken[index] :]:
                number = decode(record.value)
                if (number % PARTITIONS, number // PARTITIONS) != (record.partition, record.offset):
                    self.misplaced.append(f"{number} at {record.partition}:{record.offset}")
                self.repeats_count += number in self.numbers
                self.numbers.add(number)
                self._taken[index] += 1

    def disorder(self) -> list[str]:
        """Records that a member read again or passed over while it kept their partition.

        It may begin anew where it is assigned the partition again: then what it had not committed
        comes once more, and what others have read meanwhile does not.
        """
        found = []
        for member in self.members:
            begins = sum(event.kind == "assigned" for event in member.events)
            last: dict[int, int] = {}
            jumps_count = 0
            for record in member.found:
                jumps_count += record.offset != last.get(record.partition, record.offset - 1) + 1
                last[record.partition] = record.offset
            if member.events and jumps_count > begins * PARTITIONS:
                found.append(f"{jumps_count} jumps in {begins} assignments of {self.name}")
        return found


class CommitWatch:
    """Asks for the groups' committed offsets again and again.

    The answers must follow the log: a coordinator that shows what its group committed before, after
    it or another one has shown what was committed later, is wrong. The log itself may go back where
    a client commits an older offset after a newer one: librdkafka does, as it sends a commit again
    that a coordinator refused while it loaded, and others meanwhile.

    With kafka-python: librdkafka aborts the process when an administrator's question to a
    coordinator meets a broken connection (its issue 3663).
    """

    def __init__(self, bootstrap: str, groups: Sequence[str]) -> None:
        self._bootstrap, self._groups = bootstrap, list(groups)
        self.seen: dict[str, dict[Place, list[int | None]]] = {group: {} for group in groups}
        """Each partition's offsets in the order in which they were shown, None for none."""
        self.has_last_answer = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Asks a last time: what is committed when the members have left."""
        self._ending.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ending.wait(PAUSE_S):
            self._ask(lambda: not self._ending.wait(PAUSE_S))
        deadline = time.monotonic() + LAST_ANSWER_TIMEOUT_S
        while not self._ask(lambda: False):
            if time.monotonic() > deadline:
                return
        self.has_last_answer = True

    def _ask(self, is_asked_again: Callable[[], bool]) -> bool:
        """Until there is no answer, because a coordinator moves: the client remembers the old one.

        No answer is no wrong answer. Returns whether there was one.
        """
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        try:
            admin = KafkaAdminClient(bootstrap_servers=self._bootstrap.split(","))
        except KafkaError:
            return False
        try:
            while True:
                self._note(admin.list_group_offsets(self._groups))
                if not is_asked_again():
                    return True
        except KafkaError:
            return False
        finally:
            admin.close()

    def _note(self, answer: dict[str, dict[Any, Any]]) -> None:
        for group, offsets in answer.items():
            shown = {(place.topic, place.partition): at.offset for place, at in offsets.items()}
            for place in self.seen[group].keys() | shown.keys():
                history = self.seen[group].setdefault(place, [])
                offset = shown.get(place)
                if not history or history[-1] != offset:
                    history.append(offset)

    def last(self, group: str) -> list[int | None]:
        """Return what was shown last of each partition."""
        return [history[-1] for history in self.seen[group].values()]

    def contradictions(self, group: str, log: CommitLog) -> list[str]:
        """Name each partition whose offsets were shown in another order than the log's."""
        return [
            f"{place}: shown {history}, committed {log[group][place]}"
            for place, history in self.seen[group].items()
            if not is_in_order(history, log[group][place])
        ]

    def went_back(self, group: str) -> list[str]:
        """Name each partition of which an older offset was shown after a newer one."""
        return [
            f"{place}: {history}"
            for place, history in self.seen[group].items()
            if any(now is None or then is None or now < then for then, now in pairwise(history))
        ]


def is_in_order(shown: Sequence[int | None], committed: Sequence[int | None]) -> bool:
    """Return whether one finds what was shown, in that order, among what was committed."""
    remaining = iter(committed)
    return all(any(each == offset for each in remaining) for offset in shown)


def wait_until_all_read(
    load: GroupLoad, rides: Sequence[GroupRide], *, count: int, timeout_s: float
) -> None:
    """Until each group has read the first `count` numbers."""
    deadline, waiting = time.monotonic() + timeout_s, list(rides)
    while waiting:
        waiting = [ride for ride in waiting if ride.missing(count)]
        if time.monotonic() > deadline:
            state = {ride.name: (ride.missing(count)[:3], ride.said()) for ride in waiting}
            raise TimeoutError(f"of {count} numbers not read by {state}; {load.errors[:3]}")
        time.sleep(0.02)
