"""Where the replicas of new partitions go.

Goals, strongest first:
1. No two replicas of a partition on one host while another host is free: the host fails as one.
2. Then as many racks as possible.
3. The partitions of a topic spread evenly over the brokers, and so do their preferred leaders.
4. All topics together load the brokers evenly, by preferred leaders, then by replicas.

Partitions are placed one by one; each takes the broker that is best by (leaders of this topic,
replicas of this topic, preferred leaders, replicas, a random order that is fixed per call) as its
preferred leader, then followers likewise, with host and rack first. A topic's own spread comes
before the cluster's, or else a new, empty broker would get every partition of the next topic.

Replicas go to brokers that are up. Only where these are too few, as while one restarts, those that
are registered and will come back count too, as anybody's equals in leading: the preferred leaders
are spread for the time when all are there.

Worked example, three brokers on three hosts, two partitions, two replicas, random order 2, 0, 1:

    partition 0: all equal → leader 2; follower: 0 and 1 equal → 0
    partition 1: leader: 0 and 1 have led nothing of the topic, 1 holds less → 1;
                 follower: 0 and 2 hold one each, 2 leads more in all, so → 0
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from fairlead_controller.decisions.broker_loads import BrokerLoad
from fairlead_model.broker import BrokerRegistration
from fairlead_model.ids import BrokerId
from fairlead_model.session.refusals import RefusalCode, RefusedError

T = TypeVar("T")

_CLOSED: Final = "being drained, fenced or cordoned"


class RandomSource(Protocol):
    """The part of `random.Random` that decisions use; a parameter, so that they can be repeated."""

    def randbytes(self, n: int, /) -> bytes:
        """Return random bytes."""
        ...

    def sample(self, population: Sequence[T], k: int) -> list[T]:
        """Return k members in random order."""
        ...


@dataclass(slots=True, eq=False)
class _Candidate:
    """A broker while one topic is being placed; the counts include what is placed so far."""

    broker_id: BrokerId
    host: str
    rack: str | None
    order: int
    replicas: int
    preferred_leaders: int
    is_absent: bool = False
    topic_replicas: int = 0
    topic_leaders: int = 0

    def leader_rank(self) -> tuple[int, ...]:
        return (
            self.topic_leaders,
            self.topic_replicas,
            self.preferred_leaders,
            self.replicas,
            self.order,
        )

    def follower_rank(self, hosts: set[str], racks: list[str | None]) -> tuple[int, ...]:
        return (
            int(self.is_absent),
            int(self.host in hosts),
            racks.count(self.rack),
            self.topic_replicas,
            self.replicas,
            self.preferred_leaders,
            self.order,
        )


def place_partitions(
    brokers: Sequence[BrokerRegistration],
    loads: Mapping[BrokerId, BrokerLoad],
    *,
    partition_count: int,
    replication_factor: int,
    existing: Sequence[tuple[BrokerId, ...]] = (),
    cordoned: Collection[BrokerId] = (),
    random: RandomSource,
) -> list[tuple[BrokerId, ...]]:
    """Place new partitions on brokers; `existing` are the topic's assignments so far.

    Each partition has a replica on a broker that is up, and none on a `cordoned` one (I17).
    RefusedError (INVALID_REPLICATION_FACTOR) if none is up, or if there are fewer brokers than
    replicas.
    """
    spared = [broker for broker in brokers if broker.broker_id in cordoned]
    brokers = [broker for broker in brokers if broker.broker_id not in cordoned]
    alive = [broker for broker in brokers if broker.may_lead]
    if not alive:
        raise RefusedError(
            RefusalCode.INVALID_REPLICATION_FACTOR,
            "no broker is alive"
            + (f" that is not {_CLOSED} ({len(spared)} are)" if spared else ""),
        )
    if replication_factor > len(brokers):
        raise RefusedError(
            RefusalCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is above the {len(brokers)} brokers"
            + (f" that are not {_CLOSED} ({len(spared)} are)" if spared else ""),
        )
    chosen = alive if replication_factor <= len(alive) else brokers
    candidates = _candidates(chosen, loads, existing, random)
    return [_place_one(candidates, replication_factor) for _ in range(partition_count)]


def _candidates(
    brokers: Sequence[BrokerRegistration],
    loads: Mapping[BrokerId, BrokerLoad],
    existing: Sequence[tuple[BrokerId, ...]],
    random: RandomSource,
) -> list[_Candidate]:
    ordered = sorted(brokers, key=lambda broker: broker.broker_id)
    candidates = []
    for order, broker in enumerate(random.sample(ordered, len(ordered))):
        load = loads.get(broker.broker_id, BrokerLoad())
        candidates.append(
            _Candidate(
                broker_id=broker.broker_id,
                # A broker without a host name counts as a host of its own.
                host=broker.host_name or f"broker {broker.broker_id}",
                rack=broker.rack,
                order=order,
                is_absent=not broker.may_lead,
                replicas=load.replicas,
                preferred_leaders=load.preferred_leaders,
            )
        )
    by_id = {candidate.broker_id: candidate for candidate in candidates}
    for replicas in existing:
        for position, broker_id in enumerate(replicas):
            if broker_id in by_id:
                by_id[broker_id].topic_replicas += 1
                by_id[broker_id].topic_leaders += int(position == 0)
    return candidates


def _place_one(candidates: list[_Candidate], replication_factor: int) -> tuple[BrokerId, ...]:
    leader = min(candidates, key=_Candidate.leader_rank)
    leader.topic_leaders += 1
    leader.preferred_leaders += 1
    chosen = [leader]
    hosts: set[str] = {leader.host}
    racks: list[str | None] = [leader.rack]
    while len(chosen) < replication_factor:
        free = [candidate for candidate in candidates if candidate not in chosen]
        follower = min(free, key=lambda candidate: candidate.follower_rank(hosts, racks))
        chosen.append(follower)
        hosts.add(follower.host)
        racks.append(follower.rack)
    for candidate in chosen:
        candidate.replicas += 1
        candidate.topic_replicas += 1
    return tuple(candidate.broker_id for candidate in chosen)


def check_assignments(
    assignments: Mapping[int, Sequence[BrokerId]],
    brokers: Mapping[BrokerId, BrokerRegistration],
    *,
    first_index: int = 0,
    cordoned: Collection[BrokerId] = (),
    replication_factor: int | None = None,
) -> list[tuple[BrokerId, ...]]:
    """Check replicas given by hand and put them in order of partition.

    RefusedError (INVALID_REPLICA_ASSIGNMENT) for gaps, repeated, unknown or cordoned brokers
    (KAFKA-20832), and unequal numbers of replicas.
    """
    expected = range(first_index, first_index + len(assignments))
    if sorted(assignments) != list(expected):
        raise _bad_assignment(
            f"the assignment has to name the partitions {expected.start} to {expected.stop - 1}"
        )
    ordered = [tuple(assignments[index]) for index in expected]
    wanted = len(ordered[0]) if replication_factor is None else replication_factor
    for index, replicas in zip(expected, ordered, strict=True):
        if not replicas:
            raise _bad_assignment(f"partition {index} is assigned to no broker")
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(f"partition {index} names a broker twice")
        if len(replicas) != wanted:
            raise _bad_assignment(
                f"partition {index} has {len(replicas)} replicas where the others have {wanted}"
            )
        unknown = [broker_id for broker_id in replicas if broker_id not in brokers]
        if unknown:
            raise _bad_assignment(f"partition {index} names unknown broker {unknown[0]}")
        spared = [broker_id for broker_id in replicas if broker_id in cordoned]
        if spared:
            raise _bad_assignment(f"partition {index} names broker {spared[0]}, which is {_CLOSED}")
        if not any(brokers[broker_id].may_lead for broker_id in replicas):
            raise _bad_assignment(f"partition {index} is assigned to brokers that are all down")
    return ordered


def _bad_assignment(message: str) -> RefusedError:
    return RefusedError(RefusalCode.INVALID_REPLICA_ASSIGNMENT, message)
