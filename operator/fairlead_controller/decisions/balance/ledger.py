"""The loads of brokers while a plan is being made. It lives for one call of the planner."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import ceil, floor
from typing import Final

from fairlead_controller.decisions.balance.facts import (
    BalancedBroker,
    BalancedPartition,
    BrokerShare,
    Goal,
    Standing,
)

TOLERANCE: Final = 0.1
"""How far from its share a broker may be, as a part of the share (Cruise Control's 1.10)."""


def _floor(value: float) -> int:
    """Round down; a third of nine is three, whatever floating point makes of it."""
    return floor(round(value, 6))


def _ceil(value: float) -> int:
    """Round up, likewise."""
    return ceil(round(value, 6))


def _remove(ordered: list[tuple[int, int]], item: tuple[int, int]) -> None:
    at = bisect_left(ordered, item)
    if ordered[at : at + 1] == [item]:
        del ordered[at]


def outside(value: float, low: float, high: float) -> float:
    """Return how far a value is from a range; 0 within."""
    return max(0.0, low - value, value - high)


class Ledger:
    """The cluster in flat lists: brokers and partitions are named by their places in these."""

    def __init__(
        self, brokers: Sequence[BalancedBroker], partitions: Sequence[BalancedPartition]
    ) -> None:
        self.brokers = sorted(brokers, key=lambda each: each.broker_id)
        self.partitions = sorted(partitions, key=lambda each: (each.topic, each.index))
        place = {each.broker_id: number for number, each in enumerate(self.brokers)}
        hosts = {each.host for each in self.brokers}
        host_numbers = {host: number for number, host in enumerate(sorted(hosts))}
        self.host = [
            host_numbers[each.host] if each.host else -1 - number
            for number, each in enumerate(self.brokers)
        ]
        racks = sorted({each.rack or "" for each in self.brokers})
        self.rack = [racks.index(each.rack or "") for each in self.brokers]
        self.accepts = [not each.is_cordoned for each in self.brokers]
        self.sizes = [each.size for each in self.partitions]
        # A replica on an unknown broker counts for no broker: it only keeps its place.
        self.replicas = [[place.get(each, -1) for each in p.replicas] for p in self.partitions]
        self.is_fixed = [
            each.is_fixed or -1 in self.replicas[number]
            for number, each in enumerate(self.partitions)
        ]
        count = len(self.brokers)
        self.held_bytes = [0] * count
        self.held_replicas = [0] * count
        self.led = [0] * count
        self.led_in = [0.0] * count
        self.led_out = [0.0] * count
        self.arriving = [0] * count
        self.movable: list[list[tuple[int, int]]] = [[] for _ in self.brokers]
        """Sizes and numbers of the replicas that a broker may give away, ordered; what has come
        to it is not among them, so that nothing moves twice."""
        for number, replicas in enumerate(self.replicas):
            for each in replicas:
                if each >= 0:
                    self.held_bytes[each] += self.sizes[number]
                    self.held_replicas[each] += 1
                    if not self.is_fixed[number]:
                        self.movable[each].append((self.sizes[number], number))
            self._count_leader(number, replicas[0], 1)
        for movable in self.movable:
            movable.sort()
        self._set_shares()
        self._set_domains()
        self._loose: list[list[tuple[int, int]]] = []
        self.moved_bytes = 0
        self.budget = 0
        """How many bytes disks and replicas may move in all."""
        self.served: dict[int, Goal] = {}
        """Partitions with another assignment, and the first goal that gave them one."""

    def _set_shares(self) -> None:
        weights = [
            each.capacity if accepts else 0
            for each, accepts in zip(self.brokers, self.accepts, strict=True)
        ]
        whole = sum(weights) or 1
        self.parts = [weight / whole for weight in weights]
        self.fair_bytes = [sum(self.held_bytes) * part for part in self.parts]
        self.bytes_low = [(1 - TOLERANCE) * fair for fair in self.fair_bytes]
        self.bytes_high = [(1 + TOLERANCE) * fair for fair in self.fair_bytes]
        fair = [sum(self.held_replicas) * part for part in self.parts]
        self.replicas_low = [_floor((1 - TOLERANCE) * each) for each in fair]
        self.replicas_high = [_ceil((1 + TOLERANCE) * each) for each in fair]
        fair = [sum(self.led) * part for part in self.parts]
        self.led_low = [_floor(each) for each in fair]
        self.led_high = [_ceil(each) for each in fair]

    def _set_domains(self) -> None:
        accepting = [number for number, accepts in enumerate(self.accepts) if accepts]
        self.hosts_count = len({self.host[each] for each in accepting})
        self.racks_count = len({self.rack[each] for each in accepting})

    def _count_leader(self, number: int, broker: int, step: int) -> None:
        if broker >= 0:
            partition = self.partitions[number]
            self.led[broker] += step
            self.led_in[broker] += step * partition.bytes_in
            self.led_out[broker] += step * partition.bytes_out

    def missing_domains(self, number: int) -> tuple[int, int, int]:
        """Return how many replicas are on cordoned brokers, and machines and racks too few."""
        replicas = [each for each in self.replicas[number] if each >= 0]
        hosts = {self.host[each] for each in replicas}
        racks = {self.rack[each] for each in replicas}
        cordoned = sum(1 for each in replicas if not self.accepts[each])
        return (
            cordoned,
            max(0, min(len(replicas), self.hosts_count) - len(hosts)),
            max(0, min(len(replicas), self.racks_count) - len(racks)),
        )

    def find_loose(self) -> None:
        """Note which replicas may change their rack, once no rack has two that it need not have.

        Where each rack has its one replica of a partition, they only move within their racks, and
        need not be tried elsewhere.
        """
        count = self.racks_count
        self._loose = [
            [
                item
                for item in movable
                if len(self.replicas[item[1]]) != count
                or len({self.rack[each] for each in self.replicas[item[1]]}) != count
            ]
            for movable in self.movable
        ]

    def candidates(self, source: int, receiver: int) -> list[tuple[int, int]]:
        """Return what one broker could give to another as far as racks go, ordered by size."""
        is_near = self.rack[source] == self.rack[receiver]
        return self.movable[source] if is_near else self._loose[source]

    def is_movable(self, number: int, source: int) -> bool:
        """Tell whether a broker may give a replica away: not what has come to it by this plan."""
        item = (self.sizes[number], number)
        at = bisect_left(self.movable[source], item)
        return self.movable[source][at : at + 1] == [item]

    def has_room(self, number: int, receiver: int) -> bool:
        """Tell whether a broker takes replicas, and has room for the copy."""
        if not self.accepts[receiver]:
            return False
        free = self.brokers[receiver].free_bytes
        return free is None or self.arriving[receiver] + self.sizes[number] <= free

    def may_move(self, number: int, source: int, receiver: int) -> bool:
        """Tell whether a replica may go to another broker: free, with room, no domain lost."""
        replicas = self.replicas[number]
        if receiver in replicas or not self.has_room(number, receiver):
            return False
        return self._keeps(self.host, replicas, source, receiver) and self._keeps(
            self.rack, replicas, source, receiver
        )

    @staticmethod
    def _keeps(domain: list[int], replicas: list[int], source: int, receiver: int) -> bool:
        gained, lost = domain[receiver], domain[source]
        if gained == lost:
            return True
        is_lost, is_gained = True, True
        for each in replicas:
            if each != source:
                is_lost = is_lost and domain[each] != lost
                is_gained = is_gained and domain[each] != gained
        return is_gained or not is_lost

    def move(self, number: int, source: int, receiver: int, goal: Goal) -> None:
        """Give a replica to another broker, in the same place of the assignment."""
        replicas = self.replicas[number]
        position = replicas.index(source)
        size = self.sizes[number]
        if position == 0:
            self._count_leader(number, source, -1)
            self._count_leader(number, receiver, 1)
        replicas[position] = receiver
        self.held_bytes[source] -= size
        self.held_bytes[receiver] += size
        self.held_replicas[source] -= 1
        self.held_replicas[receiver] += 1
        self.arriving[receiver] += size
        self.moved_bytes += size
        _remove(self.movable[source], (size, number))
        if self._loose:
            _remove(self._loose[source], (size, number))
        self.served.setdefault(number, goal)

    def lead(self, number: int, leader: int, goal: Goal) -> None:
        """Make one of the replicas the preferred leader; it swaps places with the one before."""
        replicas = self.replicas[number]
        position = replicas.index(leader)
        self._count_leader(number, replicas[0], -1)
        self._count_leader(number, leader, 1)
        replicas[0], replicas[position] = leader, replicas[0]
        self.served.setdefault(number, goal)

    def disk_distance(self, broker: int, size: int = 0) -> float:
        """Return how many bytes a broker would be outside of its range with so many more."""
        return outside(
            self.held_bytes[broker] + size, self.bytes_low[broker], self.bytes_high[broker]
        )

    def improves_disks(self, source: int, receiver: int, size: int) -> bool:
        """Tell whether a move brings disks closer to their ranges."""
        after = self.disk_distance(source, -size) + self.disk_distance(receiver, size)
        return after < self.disk_distance(source) + self.disk_distance(receiver)

    def keeps_disks(self, source: int, receiver: int, size: int) -> bool:
        """Tell whether a move leaves disks no farther from their ranges than they are."""
        after = self.disk_distance(source, -size) + self.disk_distance(receiver, size)
        return after <= self.disk_distance(source) + self.disk_distance(receiver)

    def rate_ranges(self, led: Sequence[float]) -> list[tuple[float, float]]:
        """Return the range of each broker for a rate."""
        fair = [sum(led) * part for part in self.parts]
        return [((1 - TOLERANCE) * each, (1 + TOLERANCE) * each) for each in fair]

    def standing(self) -> Standing:
        """Return how even the cluster is."""
        count = range(len(self.brokers))
        in_ranges, out_ranges = self.rate_ranges(self.led_in), self.rate_ranges(self.led_out)
        missing = [self.missing_domains(number) for number in range(len(self.partitions))]

        def total(distance: Callable[[int], float]) -> float:
            return sum(distance(broker) for broker in count)

        return Standing(
            distances={
                Goal.RACKS: float(sum(map(sum, missing))),
                Goal.DISKS: total(self.disk_distance),
                Goal.REPLICAS: total(
                    lambda each: outside(
                        self.held_replicas[each], self.replicas_low[each], self.replicas_high[each]
                    )
                ),
                Goal.LEADERS: total(
                    lambda each: outside(self.led[each], self.led_low[each], self.led_high[each])
                ),
                Goal.BYTES_IN: total(lambda each: outside(self.led_in[each], *in_ranges[each])),
                Goal.BYTES_OUT: total(lambda each: outside(self.led_out[each], *out_ranges[each])),
            },
            shares={
                broker.broker_id: BrokerShare(
                    replicas=self.held_replicas[each],
                    leaders=self.led[each],
                    bytes=self.held_bytes[each],
                    bytes_in=self.led_in[each],
                    bytes_out=self.led_out[each],
                )
                for each, broker in enumerate(self.brokers)
            },
        )
