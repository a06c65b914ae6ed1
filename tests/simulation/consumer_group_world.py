"""A group of KIP-848 in virtual time: clients that are slow, die and come back, and faults.

The checks use nothing of how the coordinator works. Clients own the partitions that they were
assigned, and revoke them themselves. Only the keys of the committed log say whether a client is
still a member.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from consumer_group_driver import SETTINGS, ConsumerGroupDriver, Held, held, partitions

from fairlead_wire.errors import ErrorCode, KafkaError

HEARTBEAT_MS = 5_000
SESSION_MS = 45_000
TIMEOUT_MS = 20_000
REST_MS = SESSION_MS + TIMEOUT_MS + 6 * HEARTBEAT_MS
"""Within this long after the last fault the group is at rest."""
MOMENTS_MAX = 2_000
REPLAYED_EVERY = 10
"""Batches after which the log is replayed."""
_MEMBER_KEY = b"\0\5\0\1g"


@dataclass
class Client:
    """A process that reads. `owned` is what it really reads, `told` what it was told last."""

    member_id: str
    topics: tuple[str, ...]
    instance: str | None
    epoch: int = 0
    owned: set[tuple[str, int]] = field(default_factory=set)
    told: set[tuple[str, int]] = field(default_factory=set)
    revoked_ms: int | None = None
    """When it will have given up what it no longer may read."""
    next_ms: int = 0
    waiting: str | None = None
    needs_full: bool = True
    is_dead: bool = False
    generation_seen: int = 0

    def held(self) -> Held:
        found: Held = {}
        for name, partition in sorted(self.owned):
            found.setdefault(name, []).append(partition)
        return found

    def lose_all(self) -> None:
        self.owned.clear()
        self.told.clear()
        self.revoked_ms, self.epoch, self.needs_full = None, 0, True


class World:
    """One run. `step` does something at random; `rest` lets the group come to rest."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.topics = {"t": 4, "u": 3}
        self.driver = ConsumerGroupDriver(auto_commit=False, **self.topics)
        interval_ms = self.chance.choice([0, 1_000])
        self.driver.host.settings = replace(SETTINGS, assignment_interval_ms=interval_ms)
        self.clients: list[Client] = []
        self.members: set[str] = set()
        self.joined: set[str] = set()
        """Whoever ever was a member, as the log says it."""
        self._batches = self._replayed = 0
        self._made = 0
        self.has_faults = True

    @property
    def now_ms(self) -> int:
        return self.driver.now_ms

    def run(self, steps: int = 150) -> None:
        for _ in range(3):
            self._start()
        for _ in range(steps):
            self.step()
        self.has_faults = False
        self._rest()

    def step(self) -> None:
        chance = self.chance
        action = chance.choices(
            [self._pass_time, self._start, self._end, self._settle, self._move, self._topics],
            [60, 4, 5, 25, 3, 3],
        )[0]
        action()
        self.check()

    def _start(self, instance: str | None = None) -> None:
        if sum(not client.is_dead for client in self.clients) >= 6:
            return
        self._made += 1
        if instance is None and self.chance.random() < 0.3:
            instance = f"i{self._made}"
        topics = self.chance.choice([("t",), ("t", "u"), ("u",), ("t", "u")])
        client = Client(f"m{self._made}", topics, instance, next_ms=self.now_ms)
        self.clients.append(client)

    def _end(self) -> None:
        """A client closes, is killed, or is restarted; another changes its mind."""
        living = [client for client in self.clients if not client.is_dead]
        if not living:
            return
        client = self.chance.choice(living)
        way = self.chance.choice(["kill", "close", "topics", "stall"])
        if way == "stall":
            client.next_ms += self.chance.choice([20_000, 60_000])
        elif way == "topics":
            client.topics = self.chance.choice([("t",), ("t", "u"), ("u",)])
            client.needs_full = True
        else:
            if way == "close" and client.epoch > 0:
                client.owned.clear()
                self._send(client, -1 if client.instance is None else -2)
            client.is_dead = True
            client.owned.clear()
            if client.instance is not None:
                self._start(client.instance)

    def _pass_time(self) -> None:
        until_ms = self.now_ms + self.chance.choice([1, 100, 1_000, 3_000])
        for _ in range(MOMENTS_MAX):
            moments = [each.next_ms for each in self.clients if not each.is_dead]
            moments += [
                each.revoked_ms
                for each in self.clients
                if not each.is_dead and each.revoked_ms is not None
            ]
            due_ms = self.driver.group.next_deadline_ms()
            moments += [] if due_ms is None else [due_ms]
            moment_ms = min(moments, default=until_ms + 1)
            if moment_ms > until_ms:
                break
            self.driver.now_ms = max(self.now_ms, moment_ms)
            self.driver.take(self.driver.group.tick(**self.driver.times))
            for client in self.clients:
                self._let_act(client)
            if not self.has_faults or self.chance.random() < 0.7:
                self._settle()
            self.check()
        else:
            raise AssertionError("time stands still")
        self.driver.now_ms = until_ms

    def _let_act(self, client: Client) -> None:
        if client.is_dead:
            return
        if client.revoked_ms is not None and client.revoked_ms <= self.now_ms:
            client.owned = set(client.told)
            client.revoked_ms, client.next_ms = None, self.now_ms
        if client.next_ms <= self.now_ms:
            client.next_ms = self.now_ms + HEARTBEAT_MS
            if client.waiting is None:
                self._send(client, client.epoch)

    def _send(self, client: Client, epoch: int) -> None:
        is_full = client.needs_full or epoch == 0
        options = {
            "topics": client.topics if is_full else None,
            "timeout_ms": TIMEOUT_MS if is_full else -1,
            "owned": {} if epoch == 0 else client.held(),
            "instance": client.instance,
        }
        try:
            waiter = self.driver.send(client.member_id, epoch, **options)  # type: ignore[arg-type]
        except KafkaError as error:
            self._on_error(client, error.code)
            return
        if epoch >= 0:
            client.waiting = waiter
            client.needs_full = False
            self._hear(client)

    def _on_error(self, client: Client, code: ErrorCode) -> None:
        if code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            if code is ErrorCode.FENCED_INSTANCE_ID:
                client.is_dead = True
            client.lose_all()
            client.next_ms = self.now_ms + HEARTBEAT_MS
        elif code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            client.lose_all()
            client.next_ms = self.now_ms + 100
        else:
            client.needs_full = True
            client.next_ms = self.now_ms + 100

    def _hear(self, client: Client) -> None:
        waiter = client.waiting
        if waiter is None or waiter not in self.driver.answers:
            return
        answer, client.waiting = self.driver.answers.pop(waiter), None
        if self.has_faults and self.chance.random() < 0.05:
            client.needs_full = True  # The answer was lost on its way.
            return
        if answer.error is not ErrorCode.NONE:
            self._on_error(client, answer.error)
            return
        assert client.member_id in self.joined, "a member was let in that the log does not have"
        assert answer.member_epoch >= client.generation_seen, "a member epoch has fallen"
        client.epoch = client.generation_seen = answer.member_epoch
        if answer.assigned is None:
            return
        client.told = {
            (name, each) for name, all_ in held(answer.assigned).items() for each in all_
        }
        if client.owned <= client.told:
            if client.owned != client.told:
                client.next_ms = self.now_ms
            client.owned = set(client.told)
            client.revoked_ms = None
        else:
            longest = 30_000 if self.has_faults else 1_000
            client.revoked_ms = self.now_ms + self.chance.choice([0, 500, longest])

    def _settle(self) -> None:
        """Some of the writes are committed, or all fail."""
        if not self.driver.writes:
            return
        if self.has_faults and self.chance.random() < 0.05:
            self.driver.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            count = self.chance.randint(1, len(self.driver.writes)) if self.has_faults else None
            self.driver.commit(count=count)
        self._read_log()
        for client in self.clients:
            self._hear(client)

    def _move(self) -> None:
        """Another broker coordinates: what was not committed is lost, or was after all."""
        if self.driver.writes and self.chance.random() < 0.5:
            self.driver.commit(count=self.chance.randint(1, len(self.driver.writes)))
            self._read_log()
        self.driver.take(self.driver.group.fail_all(ErrorCode.NOT_COORDINATOR))
        answers, batches = self.driver.answers, self.driver.batches
        before = self.driver.group.members.speculative.committed.epoch
        self.driver = self.driver.reload()
        self.driver.answers, self.driver.batches = answers, batches
        assert self.driver.state.epoch == before, "a coordinator's death has changed an epoch"
        for client in self.clients:
            self._hear(client)

    def _topics(self) -> None:
        name = self.chance.choice(["t", "u"])
        self.topics[name] = min(8, self.topics[name] + 1)
        if self.chance.random() < 0.2:
            self.topics.pop(name)
            self.driver.host.set_topics(self.topics)
            self.topics[name] = 2
        self.driver.host.set_topics(self.topics)

    def _read_log(self) -> None:
        for batch in self.driver.batches[self._batches :]:
            for key, value in batch:
                if key.startswith(_MEMBER_KEY):
                    member_id = key[len(_MEMBER_KEY) + 2 :].decode()
                    self.joined.add(member_id)
                    (self.members.discard if value is None else self.members.add)(member_id)
        self._batches = len(self.driver.batches)

    def check(self) -> None:
        """No partition has two owners that are members."""
        owners: dict[tuple[str, int], str] = {}
        for client in self.clients:
            if client.member_id in self.members and not client.is_dead:
                for place in client.owned:
                    other = owners.setdefault(place, client.member_id)
                    assert other == client.member_id, f"{place} is {other}'s and {client}'s"
        batches = len(self.driver.batches)
        if not self.driver.writes and batches >= self._replayed + REPLAYED_EVERY:
            self._replayed = batches
            self.driver.require_replayable()

    def _rest(self) -> None:
        """Without faults every partition that somebody wants is read by one of those."""
        for client in self.clients:
            client.next_ms = min(client.next_ms, self.now_ms)
        until_ms = self.now_ms + REST_MS
        while self.now_ms < until_ms:
            self._pass_time()
            self._settle()
        living = [client for client in self.clients if not client.is_dead]
        wanted = {
            (name, each)
            for client in living
            for name in client.topics
            for each in range(self.topics[name])
        }
        owned = [place for client in living for place in client.owned]
        assert sorted(owned) == sorted(wanted), "a partition is read by nobody, or twice"
        for client in living:
            assert {name for name, _ in client.owned} <= set(client.topics)
            assert partitions(client.held()) == partitions(self.driver.held(client.member_id))
        assert self.driver.group.state_name == ("Stable" if living else "Empty")
