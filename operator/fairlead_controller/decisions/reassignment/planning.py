"""Where the replicas of a partition go that lose their broker, or become more or fewer. Pure.

As in `placement`, hosts come first, then racks, then the number of replicas that a broker has.
Replicas that stay keep their place in the assignment, and a new replica takes the place of the one
that goes, so that preferred leaders stay spread.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from fairlead_controller.decisions.running_reassignments import located
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.broker import BrokerRegistration
from fairlead_model.ids import BrokerId

NOBODY: Final = frozenset[BrokerId]()


def host_of(broker: BrokerRegistration) -> str:
    """Return the machine of a broker; a broker that names none counts as its own machine."""
    return broker.host_name or f"broker {broker.broker_id}"


class Holdings:
    """How many replicas each broker will have once all that moves, or waits for it, has moved."""

    def __init__(self, state: ControllerState, without: Collection[BrokerId] = NOBODY) -> None:
        """Count; new replicas go to brokers that are up and take them, and none of `without`."""
        self._brokers = state.image.brokers
        self._cordoned = state.cordoned
        self._receivers = [
            broker
            for broker_id, broker in sorted(state.image.brokers.items())
            if broker.may_lead and broker_id not in state.closed and broker_id not in without
        ]
        self._replicas = Counter({each: load.replicas for each, load in state.loads.items()})
        for topic, index in located(state.image, [*state.moves.running, *state.moves.queued]):
            partition = topic.partitions[index]
            self.note(partition.replicas, partition.queued_target or partition.target_replicas)

    def note(self, replicas: Collection[BrokerId], target: Collection[BrokerId]) -> None:
        """Count a partition at its target instead of where it is."""
        self._replicas.subtract(replicas)
        self._replicas.update(target)

    def replaced(
        self, replicas: Sequence[BrokerId], leaving: Collection[BrokerId]
    ) -> tuple[BrokerId, ...] | None:
        """Return an assignment without some brokers; None if there are too few others."""
        chosen = {each: each for each in replicas if each not in leaving}
        for each in replicas:
            if each in leaving:
                best = self._best({*replicas, *chosen.values()}, chosen.values())
                if best is None:
                    return None
                chosen[each] = best
        return tuple([chosen[each] for each in replicas])

    def resized(
        self, replicas: Sequence[BrokerId], factor: int, in_sync: Collection[BrokerId]
    ) -> tuple[BrokerId, ...] | None:
        """Return an assignment of so many replicas; None if there are too few brokers.

        The first replica stays, and so does the preferred leader. Of the others, replicas that lack
        records are removed first, then those that have to leave their broker anyway, then those
        that share a machine or a rack, then those whose broker has most.
        """
        chosen = list(replicas)
        while len(chosen) > factor:
            hosts, racks = self._hosts(chosen), self._racks(chosen)
            chosen.remove(max(chosen[1:], key=partial(self._spare, in_sync, hosts, racks)))
        while len(chosen) < factor:
            best = self._best(chosen, chosen)
            if best is None:
                return None
            chosen.append(best)
        return tuple(chosen)

    def _spare(
        self,
        in_sync: Collection[BrokerId],
        hosts: Counter[str],
        racks: Counter[str | None],
        broker_id: BrokerId,
    ) -> tuple[bool, bool, int, int, int]:
        """Rank a replica by how well a partition can do without it."""
        broker = self._brokers.get(broker_id)
        return (
            broker_id not in in_sync,
            broker is None or broker_id in self._cordoned,
            0 if broker is None else hosts[host_of(broker)],
            0 if broker is None else racks[broker.rack],
            self._replicas[broker_id],
        )

    def free_hosts(self, taken: Collection[BrokerId]) -> list[str]:
        """Return the machines that would take a replica and have none of `taken`."""
        hosts = self._hosts(taken)
        free = [host_of(each) for each in self._receivers]
        return sorted({host for host in free if host not in hosts})

    def shared_hosts(self, replicas: Collection[BrokerId]) -> int:
        """Count the replicas that share a machine with another one of the same partition."""
        return sum(count - 1 for count in self._hosts(replicas).values())

    def _hosts(self, replicas: Collection[BrokerId]) -> Counter[str]:
        known = [self._brokers[each] for each in replicas if each in self._brokers]
        return Counter(map(host_of, known))

    def _racks(self, replicas: Collection[BrokerId]) -> Counter[str | None]:
        return Counter(self._brokers[each].rack for each in replicas if each in self._brokers)

    def _best(self, taken: Collection[BrokerId], beside: Collection[BrokerId]) -> BrokerId | None:
        """Return the broker for one more replica `beside` others; `taken` are out of question."""
        hosts, racks = self._hosts(beside), self._racks(beside)
        free = [each for each in self._receivers if each.broker_id not in taken]
        if not free:
            return None
        return min(
            free,
            key=lambda each: (
                hosts[host_of(each)] > 0,
                racks[each.rack],
                self._replicas[each.broker_id],
                each.broker_id,
            ),
        ).broker_id
