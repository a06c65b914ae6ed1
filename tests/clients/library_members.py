"""Members of groups by each library that Python has.

Started as a program this is one of them in a process of its own, which a test can kill (see
`member_processes`).
"""

import json
import sys
from collections.abc import Callable
from typing import Any, Self

from aiokafka_member import AioKafkaMember
from confluent_member import ConfluentMember
from group_member import GroupMember, Membership
from kafka_python_member import KafkaPythonMember

MEMBERS: dict[str, type[GroupMember]] = {
    each.name: each for each in (ConfluentMember, KafkaPythonMember, AioKafkaMember)
}


class PrintingList(list[Any]):
    """What is added is also said on standard output, a line of JSON each."""

    def __init__(self, say: Callable[[Any], dict[str, Any]]) -> None:
        super().__init__()
        self._say = say

    def append(self, item: Any) -> None:
        super().append(item)
        print(json.dumps(self._say(item)), flush=True)

    def __iadd__(self, items: Any) -> Self:
        for item in items:
            self.append(item)
        return self


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
    sys.stdin.read()
    member.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
