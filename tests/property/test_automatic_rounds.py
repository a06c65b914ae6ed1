"""Loads that wander for hours under the mode Auto: nothing goes to and fro; it comes to rest."""

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from measured_clusters import GB, MB, state_of
from proofs import REBALANCE_WALKS, seed_chunks

from fairlead_controller.decisions.balance.cluster_facts import DiskUse, PartitionLoad
from fairlead_operator.rebalances.automatic import Begin, Memory, decide_round, remember_moves
from fairlead_operator.rebalances.measured_load import MeasuredLoad
from fairlead_operator.resources.rebalance import AutomaticLimits

LOOK = timedelta(minutes=5)
LOOKS = 24
CALM_WALKS, CALM_LOOKS = 100, 72
CHUNKS = seed_chunks(REBALANCE_WALKS)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = AutomaticLimits(
    max_moves=4, max_gibibytes=60, cool_down_seconds=900, rest_seconds=3600, quiet_seconds=600
)
Assignments = dict[str, list[tuple[int, ...]]]


@dataclass
class Walk:
    """A cluster whose rounds are carried out at once, and what has happened to it."""

    seed: int
    swing: float
    """By what part loads go up and down around where they began; above 1 they go anywhere."""
    now: datetime = BEGIN
    memory: Memory = field(default_factory=Memory)
    begun: list[tuple[datetime, str, tuple[tuple[str, int], ...], int]] = field(
        default_factory=list
    )

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.brokers = self.chance.randint(3, 5)
        factor = self.chance.randint(1, 2)
        self.topics: Assignments = {
            f"t{each}": [
                tuple(self.chance.sample(range(self.brokers), factor))
                for _ in range(self.chance.randint(2, 8))
            ]
            for each in range(self.chance.randint(1, 3))
        }
        self.means = {
            (name, index): (
                self.chance.choice([1, 5, 5, 20]) * GB,
                self.chance.choice([0, 1, 5]) * MB,
                self.chance.choice([0, 1, 10]) * MB,
            )
            for name, held in self.topics.items()
            for index in range(len(held))
        }
        self.drift = dict.fromkeys(self.means, 1.0)
        self.state = state_of(self.brokers, self.topics)

    def look(self) -> None:
        """Let loads wander, decide, and carry out what is decided."""
        self.now += LOOK
        for at in self.drift:
            if self.swing > 1:
                self.drift[at] *= self.chance.uniform(1 / self.swing, self.swing)
            else:
                self.drift[at] = 1 + self.chance.uniform(-self.swing, self.swing)
        outcome = decide_round(self.state, self.load(), LIMITS, self.memory, self.now)
        if isinstance(outcome, Begin):
            self.carry_out(outcome)

    def load(self) -> MeasuredLoad:
        loads = {
            at: PartitionLoad(*(round(each * self.drift[at]) for each in means))
            for at, means in self.means.items()
        }
        disks = {each: DiskUse(1000 * GB, 1000 * GB) for each in range(self.brokers)}
        return MeasuredLoad(
            measured_at=self.now,
            disks=disks,
            loads=loads,
            copy_bytes_per_s=MB,
            rates_known=len(loads),
            partitions=len(loads),
        )

    def carry_out(self, round_: Begin) -> None:
        moved = []
        for move in round_.plan["moves"]:
            at = (move["topic"], move["partition"])
            record = self.state.image.partition(*at)
            assert record is not None
            assert list(record.replicas) == move["before"]
            self.topics[at[0]][at[1]] = tuple(move["after"])
            moved.append(at)
        self.state = state_of(self.brokers, self.topics)
        self.begun.append((self.now, round_.why, tuple(moved), round_.plan["bytes"]))
        remembered = remember_moves(self.memory, moved, LIMITS, self.now)
        self.memory = Memory(ended_at=self.now, moved=remembered)


def check(walk: Walk) -> None:
    """Nothing is moved twice in its rest, and rounds keep their limits."""
    rest, cool_down = (
        timedelta(seconds=each) for each in (LIMITS.rest_seconds, LIMITS.cool_down_seconds)
    )
    last: dict[tuple[str, int], datetime] = {}
    before = BEGIN - cool_down
    for at, why, moved, size in walk.begun:
        assert "holds nothing" in why or at - before >= cool_down, (walk.seed, walk.begun)
        before = at
        assert 0 < len(moved) <= LIMITS.max_moves
        assert size <= LIMITS.max_gibibytes << 30
        for each in moved:
            assert at - last.get(each, BEGIN - rest) >= rest, (walk.seed, each, walk.begun)
            last[each] = at


def test_a_broker_that_has_to_stay_empty_lifts_no_cool_down() -> None:
    """More brokers than replicas: it was urgent, came to nothing, and others began for it."""
    walk = Walk(1796070465, swing=1.5)
    for _ in range(LOOKS):
        walk.look()
    check(walk)


@pytest.mark.proof
@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_wild_walks_move_nothing_twice_in_its_rest_and_keep_their_limits(seeds: list[int]) -> None:
    rounds: Counter[int] = Counter()
    for seed in seeds:
        walk = Walk(seed, swing=1.5)
        for _ in range(LOOKS):
            walk.look()
        check(walk)
        rounds[len(walk.begun)] += 1
    assert sum(count * number for count, number in rounds.items()) > len(seeds), "they do wander"


def test_walks_around_fixed_loads_come_to_rest() -> None:
    begun = late = 0
    for seed in range(CALM_WALKS):
        walk = Walk(seed, swing=0.05)
        for _ in range(CALM_LOOKS):
            walk.look()
        begun += len(walk.begun)
        settled = BEGIN + CALM_LOOKS // 2 * LOOK
        late += sum(at > settled for at, *_ in walk.begun)
        times = Counter(at for _, _, moved, _ in walk.begun for at in moved)
        # It rests for one hour, then two, then four: three times in six hours.
        assert max(times.values(), default=0) <= 3, (seed, walk.begun)
    # Few partitions, some of them as large as a tenth of the cluster: it cannot be even, and what
    # is the best that can be done changes now and then.
    assert late <= CALM_WALKS // 5
    assert begun > CALM_WALKS, "most of them had something to make even"
