"""Where the replicas of new partitions go.

Goals, strongest first:
1. No two replicas of a partition on one host while another host is free: the host fails as one.
2. Then as many racks as possible.
3. The partitions of a topic spread evenly over the brokers, and so do their preferred leaders.
4. All topics together load the brokers evenly, by preferred leaders, then by replicas.
5. What one broker leads of a topic has its second replicas on as many others as possible: they lead
   when that broker is gone (`elect_leader` takes the first in sync), and none gets it all.

Partitions are placed one by one; each takes the broker that is best by (leaders of this topic,
replicas of this topic, preferred leaders, replicas, a random order that is fixed per call) as its
preferred leader, then followers likewise, with host and rack first, and then whoever follows least
in this topic: where its leaders and its followers are even, its replicas are, too. A topic's own
spread comes before the cluster's, or else a new, empty broker would get every partition of the next
topic. Of the followers that are up, the one that has been second to this leader least comes first.

Replicas go to brokers that are up. Only where these are too few, as while one restarts, those that
are registered and will come back count too, as anybody's equals in leading: the preferred leaders
are spread for the time when all are there.

Worked example, three brokers on three hosts, two partitions, two replicas, random order 2, 0, 1:

    partition 0: all equal → leader 2; follower: 0 and 1 equal → 0
    partition 1: leader: 0 and 1 have led nothing of the topic, 1 holds less → 1;
                 follower: 2 follows nothing of the topic, 0 does → 2
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar

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


_Rank: TypeAlias = tuple[int, ...]
_WORST: Final[_Rank] = (2,)
"""The rank of a follower begins with whether it is absent."""


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

    def leader_rank(self) -> _Rank:
        return (
            self.topic_leaders,
            self.topic_replicas,
            self.preferred_leaders,
            self.replicas,
            self.order,
        )

    def load_rank(self) -> _Rank:
        """Return the rank as a follower, without the part that the other replicas decide."""
        return (
            int(self.is_absent),
            # Leaders come to all in turn. Counted here, those who lead first would follow less.
            self.topic_replicas - self.topic_leaders,
            self.topic_replicas,
            self.replicas,
            self.preferred_leaders,
            self.order,
        )


@dataclass(slots=True, eq=False)
class _Group:
    """Candidates of one rack that are all up, or all absent; `ranks` are sorted."""

    rack: str | None
    ranks: list[_Rank] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


class _Ranking:
    """All candidates, kept in order, so that a partition does not cost a look at each of them."""

    def __init__(
        self, candidates: Sequence[_Candidate], seconds: Iterable[tuple[BrokerId, ...]]
    ) -> None:
        """`seconds` are the first two replicas of the topic's partitions so far."""
        self._by_order = {candidate.order: candidate for candidate in candidates}
        self._leader_ranks = sorted(candidate.leader_rank() for candidate in candidates)
        self._groups: dict[tuple[bool, str | None], _Group] = {}
        for candidate in candidates:
            group = self._groups.setdefault(_group_of(candidate), _Group(candidate.rack))
            group.ranks.append(candidate.load_rank())
            group.hosts.add(candidate.host)
        for group in self._groups.values():
            group.ranks.sort()
        self._heads = sorted(group.ranks[0] for group in self._groups.values())
        """The best of each group."""
        self._seconds = Counter(seconds)

    def place_one(self, replication_factor: int) -> tuple[BrokerId, ...]:
        """Choose the replicas of the next partition, the preferred leader first."""
        leader = self._by_order[self._leader_ranks[0][-1]]
        chosen = {leader.order: leader}
        hosts = {leader.host}
        racks = [leader.rack]
        while len(chosen) < replication_factor:
            follower = self._best_follower(chosen, hosts, racks)
            chosen[follower.order] = follower
            hosts.add(follower.host)
            racks.append(follower.rack)
        for candidate in chosen.values():
            self._add_replica(candidate, is_leader=candidate is leader)
        followers = [candidate for candidate in chosen.values() if candidate is not leader]
        followers.sort(
            key=lambda each: (each.is_absent, self._seconds[leader.broker_id, each.broker_id])
        )
        replicas = tuple([candidate.broker_id for candidate in (leader, *followers)])
        self._seconds[replicas[:2]] += 1
        return replicas

    def _best_follower(
        self, chosen: Mapping[int, _Candidate], hosts: set[str], racks: list[str | None]
    ) -> _Candidate:
        """Find the smallest (is absent, host is taken, replicas in the rack, rest of the load)."""
        best: _Rank = _WORST
        for head in self._heads:
            is_absent, *load = head
            if (is_absent, 0, 0, *load) > best:
                break  # No broker of this group or after it is better, on any host or rack.
            group = self._groups[_group_of(self._by_order[head[-1]])]
            found = self._best_of(group, chosen, hosts)
            if found is not None:
                is_taken, rank = found
                whole = (is_absent, is_taken, racks.count(group.rack), *rank[1:])
                best = min(best, whole)
        return self._by_order[best[-1]]

    def _best_of(
        self, group: _Group, chosen: Mapping[int, _Candidate], hosts: set[str]
    ) -> tuple[int, _Rank] | None:
        """Return whether the host of the best of a group is taken, and its rank, if one is left."""
        if not group.hosts <= hosts:
            for rank in group.ranks:
                if self._by_order[rank[-1]].host not in hosts:
                    return 0, rank
        for rank in group.ranks:
            if rank[-1] not in chosen:
                return 1, rank
        return None

    def _add_replica(self, candidate: _Candidate, *, is_leader: bool) -> None:
        group = self._groups[_group_of(candidate)]
        _remove(self._heads, group.ranks[0])
        _remove(group.ranks, candidate.load_rank())
        _remove(self._leader_ranks, candidate.leader_rank())
        candidate.replicas += 1
        candidate.topic_replicas += 1
        candidate.topic_leaders += is_leader
        candidate.preferred_leaders += is_leader
        insort(self._leader_ranks, candidate.leader_rank())
        insort(group.ranks, candidate.load_rank())
        insort(self._heads, group.ranks[0])


def _group_of(candidate: _Candidate) -> tuple[bool, str | None]:
    return candidate.is_absent, candidate.rack


def _remove(ranks: list[_Rank], rank: _Rank) -> None:
    del ranks[bisect_left(ranks, rank)]


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
    ranking = _Ranking(candidates, (replicas[:2] for replicas in existing))
    return [ranking.place_one(replication_factor) for _ in range(partition_count)]


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
                # A broker without a host name counts as its own host.
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
