"""Moves leaders by changing the order of assignments, which copies nothing.

Numbers of leaders become even first. A surplus goes to a broker that misses leaders by a chain of
others where it must: one of a's partitions is led by b instead, one of b's by c. Then rates become
even by single changes that the numbers allow, and by exchanges of two leaders, which do not change
the numbers.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final

from fairlead_controller.decisions.balance.facts import Goal
from fairlead_controller.decisions.balance.ledger import Ledger, outside

CHANGES_MAX: Final = 5000
"""Bound on what one plan changes for the sake of a rate."""


class _Edges:
    """Which partitions a broker leads that another one could lead."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.led_by: list[dict[int, set[int]]] = [{} for _ in ledger.brokers]
        for number, replicas in enumerate(ledger.replicas):
            if not ledger.is_fixed[number]:
                self._enter(number, replicas)

    def _enter(self, number: int, replicas: list[int]) -> None:
        edges = self.led_by[replicas[0]]
        for other in replicas[1:]:
            if self._ledger.accepts[other]:
                edges.setdefault(other, set()).add(number)

    def lead(self, number: int, leader: int, goal: Goal) -> None:
        """Change the leader, and the edges with it."""
        replicas = self._ledger.replicas[number]
        edges = self.led_by[replicas[0]]
        for other in replicas[1:]:
            if number in edges.get(other, ()):
                edges[other].remove(number)
                if not edges[other]:
                    del edges[other]
        self._ledger.lead(number, leader, goal)
        self._enter(number, replicas)

    def chain(self, source: int, is_end: Callable[[int], bool]) -> list[int] | None:
        """Return the shortest chain of brokers along which leaders can move; None without one."""
        came_from: dict[int, int] = {source: source}
        waiting = deque([source])
        while waiting:
            at = waiting.popleft()
            if at != source and is_end(at):
                path = [at]
                while path[-1] != source:
                    path.append(came_from[path[-1]])
                return path[::-1]
            for other in sorted(self.led_by[at]):
                if other not in came_from:
                    came_from[other] = at
                    waiting.append(other)
        return None


def order_leaders(ledger: Ledger) -> None:
    """Even out leaders, then what is written to them, then what is read from them."""
    edges = _Edges(ledger)
    _even_leaders(ledger, edges)
    rates_in = _Rate(ledger, [each.bytes_in for each in ledger.partitions], ledger.led_in)
    rates_out = _Rate(ledger, [each.bytes_out for each in ledger.partitions], ledger.led_out)
    _even_rate(ledger, edges, rates_in, Goal.BYTES_IN)
    _even_rate(ledger, edges, rates_out, Goal.BYTES_OUT, guard=rates_in)


def _even_leaders(ledger: Ledger, edges: _Edges) -> None:
    led, low, high = ledger.led, ledger.led_low, ledger.led_high
    brokers = range(len(ledger.brokers))
    for source in brokers:
        while led[source] > high[source]:
            path = edges.chain(source, lambda each: led[each] < low[each]) or edges.chain(
                source, lambda each: led[each] < high[each]
            )
            if path is None:
                break
            end = path[-1]
            goal = low[end] if led[end] < low[end] else high[end]
            _pass_on(edges, path, min(led[source] - high[source], goal - led[end]))
    for end in brokers:
        while led[end] < low[end]:
            paths = [
                path
                for source in brokers
                if led[source] > low[source]
                and (path := edges.chain(source, end.__eq__)) is not None
            ]
            if not paths:
                break
            path = min(paths, key=lambda each: (len(each), -led[each[0]], each))
            _pass_on(edges, path, min(led[path[0]] - low[path[0]], low[end] - led[end]))


def _pass_on(edges: _Edges, path: list[int], count: int) -> None:
    """Pass leaders on along a chain, as many as all its links have."""
    links = list(pairwise(path))
    count = min(count, *(len(edges.led_by[giver][taker]) for giver, taker in links))
    # From the far end: what a broker takes is not what it passes on.
    for giver, taker in reversed(links):
        for number in sorted(edges.led_by[giver][taker])[:count]:
            edges.lead(number, taker, Goal.LEADERS)


class _Rate:
    """The rate of each broker's leaders, and the range that it should have."""

    def __init__(self, ledger: Ledger, rates: Sequence[float], led: Sequence[float]) -> None:
        self.rates, self.led = rates, led
        self.ranges = ledger.rate_ranges(led)

    def excess(self, broker: int) -> float:
        """Return how much a broker has above its range; negative if there is room."""
        return self.led[broker] - self.ranges[broker][1]

    def gain(self, source: int, receiver: int, given: int, taken: int | None) -> float:
        """Return by how much two brokers come closer to their ranges."""
        shift = self.rates[given] - (0.0 if taken is None else self.rates[taken])
        before, after = 0.0, 0.0
        for each, more in ((source, -shift), (receiver, shift)):
            before += outside(self.led[each], *self.ranges[each])
            after += outside(self.led[each] + more, *self.ranges[each])
        # Smaller differences are those of floating point.
        return round(before - after, 6)


def _even_rate(
    ledger: Ledger, edges: _Edges, rate: _Rate, goal: Goal, guard: _Rate | None = None
) -> None:
    """Even out one rate; `guard` is the rate before it in rank, which must not become worse."""
    busy = [each for each, accepts in enumerate(ledger.accepts) if accepts]
    stuck: set[int] = set()
    for _ in range(CHANGES_MAX):
        above = [each for each in busy if each not in stuck and rate.excess(each) > 0]
        if not above:
            return
        source = max(above, key=lambda each: (rate.excess(each), -each))
        change = _first_change(ledger, edges, source, rate, guard)
        if change is None:
            stuck.add(source)
            continue
        given, taken, receiver = change
        edges.lead(given, receiver, goal)
        if taken is not None:
            edges.lead(taken, source, goal)


def _first_change(
    ledger: Ledger, edges: _Edges, source: int, rate: _Rate, guard: _Rate | None
) -> tuple[int, int | None, int] | None:
    """Return what is given, what is taken for it, and by whom: by who has most room, if it can."""
    by_room = sorted(edges.led_by[source], key=lambda each: (rate.excess(each), each))
    for receiver in by_room:
        wanted = min(rate.excess(source), -rate.excess(receiver))
        if wanted <= 0:
            return None
        best: tuple[float, int, int | None] | None = None
        offers = edges.led_by[receiver].get(source, set())
        may_give = _numbers_allow(ledger, source, receiver)
        given_up = sorted(edges.led_by[source][receiver])
        for given, taken in _exchanges(given_up, offers, rate.rates, wanted):
            if taken is None and not may_give:
                continue
            gain = rate.gain(source, receiver, given, taken)
            if gain <= (0.0 if best is None else best[0]):
                continue
            if guard is None or guard.gain(source, receiver, given, taken) >= 0:
                best = (gain, given, taken)
        if best is not None:
            return best[1], best[2], receiver
    return None


def _exchanges(
    given_up: Sequence[int], offers: Collection[int], rates: Sequence[float], wanted: float
) -> Iterator[tuple[int, int | None]]:
    """Walk changes that shift about a rate: one given for nothing, or for one that is offered."""
    offered = sorted((rates[each], each) for each in offers)
    for given in given_up:
        yield given, None
        at = bisect_left(offered, (rates[given] - wanted, -1))
        for rate, taken in offered[max(0, at - 1) : at + 1]:
            if rate < rates[given]:
                yield given, taken


def _numbers_allow(ledger: Ledger, source: int, receiver: int) -> bool:
    """Tell whether one leader may change without that the goal of leaders gets worse."""
    led, low, high = ledger.led, ledger.led_low, ledger.led_high
    now = outside(led[source], low[source], high[source]) + outside(
        led[receiver], low[receiver], high[receiver]
    )
    after = outside(led[source] - 1, low[source], high[source]) + outside(
        led[receiver] + 1, low[receiver], high[receiver]
    )
    return after <= now
