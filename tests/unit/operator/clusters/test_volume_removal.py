"""No broker is restarted without a volume that holds its replicas, whatever people do meanwhile.

A pool of three brokers, of which people want the volumes 0 and 1, or 0 alone, as the API server may
let them in error. Pods die and come back, StatefulSets are deleted, brokers do not answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from operator_views import pool_view

from fairlead_operator.clusters.pool_volumes import VolumeDecision, decide_volumes
from fairlead_operator.clusters.rolling import (
    BrokerState,
    DeletePod,
    RollObserved,
    decide_roll_action,
)
from fairlead_operator.clusters.volume_use import ClaimUse, PodVolumes, find_use, note_unsaid
from fairlead_operator.specs.claim_template import ClaimTemplate, build_claim_template
from fairlead_operator.specs.names import claim_name

BROKERS, STEPS, SEEDS = 3, 60, 50
POOLS = {
    number: pool_view(
        replicas=BROKERS,
        storage={"volumes": [{"id": each, "size": "1Gi"} for each in range(number)]},
    )
    for number in (1, 2)
}


def claim(broker: int, volume: int) -> str:
    return claim_name("demo", "main", broker, volume)


@dataclass
class Pool:
    """Its objects in Kubernetes, and what lies on volume 1 of each broker."""

    random: Random
    wanted: int = 2
    templates: tuple[ClaimTemplate, ...] | None = None
    pods: dict[int, frozenset[int]] = field(default_factory=dict)
    """The volumes that each broker's pod has."""
    claims: set[str] = field(default_factory=set)
    holders: set[int] = field(default_factory=set)
    cordoned: set[int] = field(default_factory=set)
    went: int = 0
    """How many pods have been restarted without volume 1."""

    def start_missing(self) -> None:
        """Make pods, as the StatefulSet's controller does."""
        if self.templates is None:
            return
        volumes = frozenset(each.volume for each in self.templates)
        for broker in set(range(BROKERS)) - self.pods.keys():
            lost = broker in self.holders and 1 not in volumes
            assert not lost, f"broker {broker} has started without its replicas"
            self.pods[broker] = volumes
            self.claims |= {claim(broker, each) for each in volumes}

    def sight(self) -> dict[str, PodVolumes]:
        """What the operator hears; one in five does not answer."""
        said = {}
        for broker, volumes in self.pods.items():
            claims = {each: claim(broker, each) for each in volumes}
            is_drained = broker in self.cordoned - self.holders
            answers = len(claims) > 1 and self.random.random() < 0.8
            drained = frozenset({1} if is_drained else ()) if answers else None
            said[f"demo-main-{broker}"] = PodVolumes(claims=claims, drained=drained)
        return said

    def reconcile(self) -> None:
        """Do as the operator does in one pass: one step of the StatefulSet, or one restart."""
        said, templates = self.sight(), self.templates
        sizes = dict.fromkeys(self.claims, "1Gi")
        use = find_use(said, self.claims)
        pool = POOLS[self.wanted]
        decision = decide_volumes(pool, BROKERS, templates, sizes, self.claims, use=use)
        if templates is None:
            self.templates = decision.templates
        elif decision.recreates:
            self.templates = None
        else:
            self.restart_one(said, templates)
        self.start_missing()

    def restart_one(
        self, said: dict[str, PodVolumes], templates: tuple[ClaimTemplate, ...]
    ) -> None:
        claims = [build_claim_template(each, {}) for each in templates]
        stays = {each.volume for each in templates}
        brokers = [
            BrokerState(
                broker_id=broker,
                pod=f"demo-main-{broker}",
                pod_uid="u",
                is_outdated=volumes != stays,
                is_ready=True,
                is_live=True,
                draining_s=1.0 if volumes != stays else None,
            )
            for broker, volumes in self.pods.items()
        ]
        noted = note_unsaid(brokers, said, {"spec": {"volumeClaimTemplates": claims}})
        action = decide_roll_action(RollObserved(brokers=noted, under_replicated=0, offline=0))
        if isinstance(action, DeletePod):
            self.went += 1 in self.pods.pop(action.broker_id) - stays

    def disturb(self) -> None:
        """Let something happen that nobody has asked the operator for."""
        broker = self.random.randrange(BROKERS)
        match self.random.randrange(6):
            case 0:
                self.wanted = self.random.choice((1, 2))
            case 1:
                self.cordoned, self.holders = set(range(BROKERS)), set()
            case 2:
                self.cordoned.discard(broker)
            case 3 if 1 in self.pods[broker]:
                self.cordoned.discard(broker)
                self.holders.add(broker)
            case 4 if broker not in self.holders:
                # One that dies in the second in which its volume is used again is nobody's doing.
                del self.pods[broker]
                self.start_missing()
            case 5 if len(self.pods) == BROKERS:
                self.templates = None


def walk(seed: int) -> Pool:
    pool = Pool(Random(seed))
    for _ in range(STEPS):
        while len(pool.pods) < BROKERS:
            pool.reconcile()
        pool.disturb()
        for _ in range(pool.random.randrange(6)):
            pool.reconcile()
    return pool


def test_no_broker_starts_without_a_volume_that_holds_its_replicas() -> None:
    went = sum(walk(seed).went for seed in range(SEEDS))
    assert went > SEEDS, "volumes have to go, too"


def test_a_volume_that_all_have_emptied_goes_in_the_end() -> None:
    for seed in range(SEEDS):
        pool = walk(seed)
        pool.wanted, pool.holders, pool.cordoned = 1, set(), set(range(BROKERS))
        for _ in range(60):
            pool.reconcile()
        assert set(pool.pods.values()) == {frozenset({0})}, seed


def believes_all(use: ClaimUse) -> ClaimUse:
    return ClaimUse(unused=use.unused | use.in_use)


def asks_nobody(
    brokers: list[BrokerState], _: dict[str, PodVolumes], __: Mapping[str, Any] | None
) -> list[BrokerState]:
    return brokers


def walks_badly() -> None:
    with pytest.raises(AssertionError, match="has started without its replicas"):
        for seed in range(SEEDS):
            walk(seed)


def test_the_walk_finds_a_volume_that_goes_though_brokers_have_not_emptied_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = decide_volumes

    def decide(*arguments: Any, use: ClaimUse) -> VolumeDecision:
        return original(*arguments, use=believes_all(use))

    monkeypatch.setitem(globals(), "decide_volumes", decide)
    monkeypatch.setitem(globals(), "note_unsaid", asks_nobody)
    walks_badly()


def test_the_walk_finds_a_restart_of_a_broker_that_has_not_been_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(globals(), "note_unsaid", asks_nobody)
    walks_badly()
