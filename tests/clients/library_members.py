"""Members of groups by each library that Python has.

Started as a program this is one of them in a process of its own, which a test can ask and kill
(see `member_processes`).
"""

import json
import sys
import threading
from collections.abc import Callable
from typing import Any, Self

from aiokafka_member import AioKafkaMember
from confluent_member import ConfluentMember
from group_member import COMMAND_TIMEOUT_S, GroupMember, Membership
from kafka_python_member import KafkaPythonMember

MEMBERS: dict[str, type[GroupMember]] = {
    each.name: each for each in (ConfluentMember, KafkaPythonMember, AioKafkaMember)
}


class PrintingList(list[Any]):
    """What is added is also said on standard output, a line of JSON each."""

    def __init__(self, describe: Callable[[Any], dict[str, Any]]) -> None:
        super().__init__()
        self._describe = describe

    def append(self, item: Any) -> None:
        super().append(item)
        say(self._describe(item))

    def __iadd__(self, items: Any) -> Self:  # type: ignore[misc]  # `+` is not asked for
        for item in items:
            self.append(item)
        return self


_saying = threading.Lock()


def say(line: dict[str, Any]) -> None:
    """The member's thread and that of its commands both do."""
    with _saying:
        print(json.dumps(line), flush=True)


def carry_out(member: GroupMember, what: str, arguments: list[Any]) -> Any:
    """A command as `LibraryProcess` writes it: places are lists there."""
    if what in {"commit", "commit_later"}:
        rows, *note = arguments
        offsets = {(topic, partition): offset for topic, partition, offset in rows}
        if what == "commit":
            return member.commit(offsets, *note)
        return member.commit_later(offsets).result(COMMAND_TIMEOUT_S)
    if what in {"stall", "wake"}:
        return getattr(member, what)()
    place, *rest = arguments
    return getattr(member, what)(tuple(place), *rest)


def answer(member: GroupMember, number: int, what: str, *arguments: Any) -> None:
    """Tell what came of a command, or the name of the client's own error."""
    try:
        value = carry_out(member, what, list(arguments))
    except Exception as error:
        say({"answer": number, "refused": member.name_error(error)})
    else:
        say({"answer": number, "value": value})


def main(name: str, bootstrap: str, membership: str) -> None:
    """A member in a process of its own, until its standard input ends."""
    wish = json.loads(membership)
    member = MEMBERS[name](bootstrap, Membership(**wish | {"topics": tuple(wish["topics"])}))
    member.found = PrintingList(
        lambda each: {"found": [each.topic, each.partition, each.offset, each.value.decode()]}
    )
    member.events = PrintingList(lambda event: {"event": event.kind, "places": [*event.places]})
    member.errors = PrintingList(lambda error: {"error": error})
    member.start()
    for line in sys.stdin:
        answer(member, *json.loads(line))
    member.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
