"""Commands about one consumer group: what its members ask, what is logged, and time.

The group's state machine and its offsets are the product's. Members go by names that the transcript
gives them; each remembers the member id and the generation that it was told last, as a client does.
What the group writes to its log is committed by the command `log`: answers that must wait for that
come then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from group_driver import GroupDriver, subscription

from fairlead_broker.group.group_offsets import GroupOffsets, encode_commit
from fairlead_broker.group.group_types import JoinResult, SyncResult
from fairlead_wire.errors import ErrorCode
from transcripts.transcript import CommandError, Duration, Interpreter, command

TOPIC = "t"
CLIENTS = ("new", "old")
JOIN_DEFAULTS: dict[str, Any] = {
    "topics": TOPIC,
    "assignors": "range",
    "session": 10_000,
    "rebalance": 60_000,
    "protocol_type": "consumer",
    "client": "new",
}


@dataclass
class Client:
    """What one process of a member knows of itself."""

    instance: str | None
    options: dict[str, Any] = field(default_factory=dict)
    """That it has joined with so far, and joins with again."""
    member_id: str = ""
    generation: int = -1


class GroupsTranscript(Interpreter):
    """One group, the clients that use it, and the committed offsets."""

    def __init__(self) -> None:
        super().__init__()
        self._driver = GroupDriver()
        self._offsets = GroupOffsets("g")
        self._clients: dict[str, Client] = {}
        self._requests = 0
        self._waiting: dict[tuple[str, int], None] = {}
        """Requests without an answer: who asked, and a number."""

    def do(self, line: str) -> list[str]:
        state = self._state()
        said = super().do(line)
        self._say_answers()
        if self._state() != state:
            self.say(f"group: {self._state()}")
        later, self._said = self._said, []
        return said + later

    @command
    def group(self, *, initial_delay: Duration | None = None, size_max: int = 1_000) -> None:
        """Begin anew with another group, under these settings of the brokers."""
        self._driver = GroupDriver(delay_ms=initial_delay or 0, size_max=size_max)
        self._offsets = GroupOffsets("g")
        self._clients.clear()
        self._waiting.clear()

    @command
    def join(
        self,
        member: str,
        *,
        instance: str | None = None,
        topics: str | None = None,
        assignors: str | None = None,
        session: Duration | None = None,
        rebalance: Duration | None = None,
        protocol_type: str | None = None,
        client: str | None = None,
    ) -> None:
        """Join, or join again as before but for what is given; `old` clients need no id first."""
        known = self._clients.setdefault(member, Client(instance))
        given = {
            "topics": topics,
            "assignors": assignors,
            "session": session,
            "rebalance": rebalance,
            "protocol_type": protocol_type,
            "client": client,
        }
        known.options |= {name: value for name, value in given.items() if value is not None}
        said = JOIN_DEFAULTS | known.options
        if said["client"] not in CLIENTS:
            raise CommandError(f"client is one of {', '.join(CLIENTS)}, not {client!r}")
        metadata = subscription(*said["topics"].split(","))
        self._driver.join(
            self._waiter(member),
            known.member_id,
            instance=known.instance,
            protocols=tuple((name, metadata) for name in said["assignors"].split(",")),
            protocol_type=said["protocol_type"],
            session_ms=said["session"],
            rebalance_ms=said["rebalance"],
            needs_id=said["client"] == "new",
            skips=said["client"] == "new",
        )

    @command
    def sync(self, member: str, *, generation: int | None = None, **assignments: str) -> None:
        """Ask for the assignment; the leader brings those of all, by the members' names."""
        known = self._client(member)
        brought = {
            self._client(name).member_id: assigned.encode()
            for name, assigned in assignments.items()
        }
        self._driver.sync(
            self._waiter(member),
            known.member_id,
            known.generation if generation is None else generation,
            brought,
            instance=known.instance,
        )

    @command
    def heartbeat(self, *members: str) -> None:
        """Send signs of life."""
        for name in members:
            known = self._client(name)
            error = self._driver.heartbeat(known.member_id, known.generation, known.instance)
            self.say(f"{name}: heartbeat {_outcome(error)}")

    @command
    def leave(self, member: str) -> None:
        """Leave the group as a member."""
        known = self._client(member)
        (error,) = self._driver.leave((known.member_id, known.instance))
        self.say(f"{member}: leave {_outcome(error)}")

    @command
    def remove(self, instance: str) -> None:
        """Remove a static member as an administrator does."""
        (error,) = self._driver.leave(("", instance))
        self.say(f"remove {instance}: {_outcome(error)}")

    @command
    def disconnect(self, member: str) -> None:
        """Let the connection of a member's waiting request be gone."""
        waiting = [waiter for waiter in self._waiting if waiter[0] == member]
        if not waiting:
            raise CommandError(f"nothing that {member} asked is waiting")
        for waiter in waiting:
            self._driver.group.forget_waiter(waiter)
            del self._waiting[waiter]

    @command
    def log(self, outcome: str = "ok") -> None:
        """Commit what the group has written, or fail it with an error."""
        if not self._driver.writes:
            raise CommandError("the group has written nothing")
        if outcome == "ok":
            self._driver.commit()
            return
        if outcome not in ErrorCode.__members__:
            raise CommandError(f"there is no error {outcome!r}")
        self._driver.commit(ErrorCode[outcome])

    @command
    def time(self, passes: Duration) -> None:
        """Let time pass, with the group's deadlines in it."""
        self._driver.pass_time(passes)

    @command
    def another_coordinator(self) -> None:
        """Let another broker coordinate: it has replayed what was committed."""
        self._driver.take(self._driver.group.fail_all(ErrorCode.NOT_COORDINATOR))
        self._say_answers()
        assert not self._waiting, "everybody is told who waited for the old coordinator"
        self._driver = self._driver.reload()

    @command
    def commit(
        self, member: str, offset: int, *, topic: str = TOPIC, generation: int | None = None
    ) -> None:
        """Commit an offset of partition 0; `nobody` does so from outside the group."""
        if member == "nobody":
            error = self._driver.check_commit("", -1)
        else:
            known = self._client(member)
            error = self._driver.check_commit(
                known.member_id,
                known.generation if generation is None else generation,
                known.instance,
            )
        if error is ErrorCode.NONE:
            now_ms = self._driver.times["now_wall_ms"]
            self._offsets.committed(topic, 0, encode_commit(offset, -1, b"", now_ms))
        self.say(f"{member}: commit {_outcome(error)}")

    @command
    def expire(self, *, retention: Duration) -> None:
        """Remove offsets whose retention is over, as the coordinator does by and by."""
        about = self._driver.group.subscriptions()
        now_ms = self._driver.times["now_wall_ms"]
        for topic, partition in self._offsets.expired(about, now_ms=now_ms, retention_ms=retention):
            self._offsets.removed(topic, partition)
            self.say(f"expired: {topic}-{partition}")
        self.offsets()

    @command
    def offsets(self) -> None:
        """Print what is committed."""
        committed = {
            f"{topic}-{partition}": found.offset
            for topic, partition in self._offsets.partitions()
            if (found := self._offsets.find(topic, partition)) is not None
        }
        said = " ".join(f"{key}={offset}" for key, offset in sorted(committed.items()))
        self.say(f"offsets: {said or 'none'}")

    @command
    def show(self) -> None:
        """Print the group and its members."""
        self.say(f"group: {self._state()}")
        for member in self._driver.group.describe().members:
            instance = f" of {member.group_instance_id}" if member.group_instance_id else ""
            assigned = member.assignment.decode() or "nothing"
            self.say(f"{member.member_id}{instance}: {assigned}")

    def _client(self, name: str) -> Client:
        if name not in self._clients:
            raise CommandError(f"there is no member {name!r}")
        return self._clients[name]

    def _waiter(self, name: str) -> tuple[str, int]:
        self._requests += 1
        waiter = (name, self._requests)
        self._waiting[waiter] = None
        return waiter

    def _state(self) -> str:
        group = self._driver.group
        members = " ".join(member.member_id for member in group.describe().members)
        state = f"{group.state.value}, generation {group.generation_id}"
        return f"{state}, members {members or 'none'}"

    def _say_answers(self) -> None:
        for waiter in list(self._waiting):
            result = self._driver.answers.get(waiter)
            if result is None:
                continue
            del self._waiting[waiter]
            name, _ = waiter
            if isinstance(result, JoinResult):
                self.say(f"{name}: {self._joined(self._clients[name], result)}")
            else:
                assert isinstance(result, SyncResult)
                self.say(f"{name}: {_synced(result)}")

    def _joined(self, client: Client, result: JoinResult) -> str:
        """Take in the answer to a join, and say what it was."""
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = result.member_id
            return f"{result.error.name}, to come again as {result.member_id}"
        if result.error is not ErrorCode.NONE:
            return f"join {result.error.name}"
        client.member_id, client.generation = result.member_id, result.generation_id
        words = f"joined generation {result.generation_id} as {result.member_id}"
        words += f", assignor {result.protocol_name}"
        if result.members:
            members = " ".join(member.member_id for member in result.members)
            words += f", is told of {members}"
        return words + (", need not assign" if result.skip_assignment else "")


def _outcome(error: ErrorCode) -> str:
    return "ok" if error is ErrorCode.NONE else error.name


def _synced(result: SyncResult) -> str:
    if result.error is not ErrorCode.NONE:
        return f"sync {result.error.name}"
    return f"assigned {result.assignment.decode() or 'nothing'}"
