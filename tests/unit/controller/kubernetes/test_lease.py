"""The contest for the Lease: tables of single steps, and many random contests of two."""

import random
from dataclasses import dataclass, field

import pytest

from fairlead_controller.kubernetes.lease import (
    DURATION_MS,
    LOOK_MS,
    RENEW_DEADLINE_MS,
    RETRY_MS,
    GiveUp,
    LeaseClaim,
    LeaseRecord,
    ReadLease,
    WaitUntil,
    WriteLease,
)


def record(holder: str, renewal: int = 1, version: str = "v1") -> LeaseRecord:
    return LeaseRecord(version, holder, str(renewal))


def holder(at_ms: int = 1000) -> LeaseClaim:
    """A claim that has won at a moment."""
    claim = LeaseClaim("me")
    claim.on_read(None, at_ms)
    claim.on_written(record("me"), at_ms)
    return claim


def test_it_looks_first() -> None:
    assert LeaseClaim("me").next_step(5) == ReadLease()


@pytest.mark.parametrize(
    ("seen", "version"), [(None, None), (record(""), "v1"), (record("me"), "v1")]
)
def test_a_free_lease_is_taken_at_once(seen: LeaseRecord | None, version: str | None) -> None:
    claim = LeaseClaim("me")
    claim.on_read(seen, 100)
    assert claim.next_step(100) == WriteLease(version, is_takeover=True)
    assert not claim.is_held(100), "not before the write was answered"


def test_a_held_lease_is_taken_after_its_duration_without_change() -> None:
    claim = LeaseClaim("me")
    claim.on_read(record("other"), 100)
    assert claim.next_step(100) == WaitUntil(100 + LOOK_MS)
    for at_ms in range(100 + LOOK_MS, 100 + DURATION_MS, LOOK_MS):
        assert claim.next_step(at_ms) == ReadLease()
        claim.on_read(record("other"), at_ms)
    assert claim.next_step(100 + DURATION_MS) == ReadLease(), "the last look is a fresh one"
    claim.on_read(record("other"), 100 + DURATION_MS)
    assert claim.next_step(100 + DURATION_MS) == WriteLease("v1", is_takeover=True)


def test_every_renewal_begins_the_time_anew_whatever_its_clock_says() -> None:
    claim = LeaseClaim("me")
    for renewal, at_ms in enumerate(range(0, 20_000, 2500)):
        claim.on_read(record("other", -renewal), at_ms)
        assert isinstance(claim.next_step(at_ms), WaitUntil)


def test_labels_are_no_renewal() -> None:
    claim = LeaseClaim("me")
    claim.on_read(record("other", version="v1"), 0)
    claim.on_read(record("other", version="v2"), DURATION_MS)
    assert claim.next_step(DURATION_MS) == WriteLease("v2", is_takeover=True)


def test_a_longer_duration_in_the_record_is_respected() -> None:
    claim = LeaseClaim("me")
    claim.on_read(LeaseRecord("v", "other", "1", 10_000), 0)
    claim.on_read(LeaseRecord("v", "other", "1", 10_000), DURATION_MS)
    assert isinstance(claim.next_step(DURATION_MS), WaitUntil)


def test_somebody_else_was_quicker() -> None:
    claim = LeaseClaim("me")
    claim.on_read(None, 0)
    claim.on_failed(1)
    assert claim.next_step(1) == WaitUntil(1 + RETRY_MS)
    assert claim.next_step(1 + RETRY_MS) == ReadLease()


def test_a_holder_renews_and_counts_from_when_it_asked() -> None:
    claim = holder(1000)
    assert claim.next_step(1200) == WaitUntil(1000 + RETRY_MS)
    assert claim.next_step(1500) == WriteLease("v1", is_takeover=False)
    claim.on_written(record("me", 2, "v2"), 1500)
    assert claim.is_held(1500 + RENEW_DEADLINE_MS - 1)
    assert not claim.is_held(1500 + RENEW_DEADLINE_MS)


def test_an_answer_that_comes_too_late_makes_no_holder() -> None:
    claim = LeaseClaim("me")
    claim.on_read(None, 0)
    claim.on_written(record("me"), 0)
    assert not claim.is_held(RENEW_DEADLINE_MS)
    assert isinstance(claim.next_step(RENEW_DEADLINE_MS), GiveUp)


def test_a_paused_holder_gives_up_before_it_does_anything() -> None:
    claim = holder(1000)
    assert not claim.is_held(11_000)
    step = claim.next_step(11_000)
    assert isinstance(step, GiveUp)
    assert "10000 ms" in step.reason
    claim.on_written(record("me", 3), 10_999)
    assert not claim.is_held(11_000), "once lost is lost"


def test_an_unknown_outcome_is_looked_up_and_renewed_from_there() -> None:
    claim = holder(1000)
    claim.on_failed(1600)
    assert claim.next_step(1800) == ReadLease()
    claim.on_read(record("me", 2, "v2"), 1810)
    assert claim.held_until_ms == 1000 + RENEW_DEADLINE_MS, "reading renews nothing"
    assert claim.next_step(1810) == WriteLease("v2", is_takeover=False)


@pytest.mark.parametrize("seen", [None, record("other"), record("")])
def test_a_holder_that_sees_another_gives_up(seen: LeaseRecord | None) -> None:
    claim = holder(1000)
    claim.on_failed(1600)
    claim.on_read(seen, 1700)
    assert isinstance(claim.next_step(1700), GiveUp)
    assert not claim.is_held(1700)


@dataclass
class Server:
    """The API server's side: one record, compare-and-swap, and writes that land late."""

    record: LeaseRecord | None = None
    version: int = 0
    late: list[tuple[float, str | None, str]] = field(default_factory=list)

    def write(self, version: str | None, holder: str) -> LeaseRecord | None:
        if version != (None if self.record is None else self.record.version):
            return None
        self.version += 1
        self.record = LeaseRecord(f"v{self.version}", holder, str(self.version))
        return self.record

    def land(self, now: float) -> None:
        for item in [each for each in self.late if each[0] <= now]:
            self.late.remove(item)
            self.write(item[1], item[2])


class Contender:
    """A candidate with a clock of its own; it may be paused, end and be started again."""

    def __init__(self, name: str, chance: random.Random, server: Server) -> None:
        self.name = name
        self.chance = chance
        self.server = server
        self.offset = chance.randrange(0, 10_000_000)
        self.speed = chance.uniform(0.98, 1.02)
        self.starts = 0
        self.paused_until = 0.0
        self.answer_at = 0.0
        self.answer: tuple[object, LeaseRecord | None, bool, int] | None = None
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.claim = LeaseClaim(f"{self.name}-{self.starts}")
        self.answer = None

    def clock(self, now: float) -> int:
        return self.offset + int(now * self.speed)

    def act(self, now: float) -> None:
        if now < self.paused_until:
            return
        if self.chance.random() < 0.0005:
            self.paused_until = now + self.chance.choice([200, 1500, 2500, 10_000])
        if self.answer is not None:
            if now < self.answer_at:
                return
            self.take_answer(now)
        step = self.claim.next_step(self.clock(now))
        match step:
            case GiveUp():
                self.start()
            case ReadLease() | WriteLease():
                self.ask(step, now)

    def ask(self, step: ReadLease | WriteLease, now: float) -> None:
        self.answer_at = now + self.chance.choice([1, 5, 20, 400])
        asked_ms = self.clock(now)
        fate = self.chance.random()
        if isinstance(step, ReadLease):
            self.answer = (step, self.server.record, fate > 0.05, asked_ms)
        elif fate < 0.05:
            self.answer = (step, None, False, asked_ms)
            self.answer_at = now + 1000
        elif fate < 0.15:
            late = (now + self.chance.uniform(0, 6000), step.version, self.claim.identity)
            self.server.late.append(late)
            self.answer = (step, None, False, asked_ms)
            self.answer_at = now + 1000
        else:
            written = self.server.write(step.version, self.claim.identity)
            self.answer = (step, written, written is not None, asked_ms)

    def take_answer(self, now: float) -> None:
        assert self.answer is not None
        step, result, is_good, asked_ms = self.answer
        self.answer = None
        if not is_good:
            self.claim.on_failed(self.clock(now))
        elif isinstance(step, ReadLease):
            # What was read is as old as the answer took.
            self.claim.on_read(result, self.clock(now))
        else:
            assert result is not None
            self.claim.on_written(result, asked_ms)


@pytest.mark.parametrize("seed", range(30))
def test_never_two_hold_it_by_their_own_clocks(seed: int) -> None:
    chance = random.Random(seed)
    server = Server()
    contenders = [Contender(name, chance, server) for name in "ab"]
    held_ms = 0
    takeovers: set[str] = set()
    for now in range(0, 120_000, 5):
        server.land(now)
        for contender in contenders:
            contender.act(now)
        # A paused process, too: it must not act when it wakes.
        holders = [each for each in contenders if each.claim.is_held(each.clock(now))]
        assert len(holders) <= 1, f"seed {seed}: two hold the Lease after {now} ms"
        held_ms += 5 * len(holders)
        takeovers.update(each.claim.identity for each in holders)
    assert held_ms > 30_000, "somebody holds it most of the time"
    assert len(takeovers) >= 2
