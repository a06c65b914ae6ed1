"""Makes the plan: one goal after the other, each by steps that cost no goal before it. Pure.

1. Racks: replicas leave brokers that are being drained, and machines and racks that have two.
2. Disks: brokers above their range give to those that miss most, then those below theirs take from
   those that have most. Every step brings two brokers closer to their shares, so it ends, and a
   replica moves once. What is chosen has about the size of what is to go, divided by how many
   replicas are to go: so the numbers become even with the bytes.
3. Replicas: the smallest ones move, as far as disks allow it.
4. Leaders, bytes in and out: assignments in another order, which copies nothing.

Disks and replicas move no more than `SPARE` times what every plan has to move; what stays uneven
then is seen in the plan. The same input gives the same plan: ids decide ties.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from fairlead_controller.decisions.balance.facts import (
    BalancedBroker,
    BalancedPartition,
    BalancePlan,
    Goal,
    PlannedMove,
)
from fairlead_controller.decisions.balance.leader_order import order_leaders
from fairlead_controller.decisions.balance.ledger import Ledger
from fairlead_controller.decisions.balance.lower_bound import bytes_needed

SPARE: Final = 1.3
"""Even disks and numbers may cost so many times the bytes that every such plan moves at least."""
PASSED_OVER_MAX: Final = 32
"""So many replicas are looked at for one of a partition that stays otherwise: brokers that take all
replicas of the same partitions could lead no more than these."""
_AFTER_ALL: Final = 1 << 62


def plan_balance(
    brokers: Sequence[BalancedBroker], partitions: Sequence[BalancedPartition]
) -> BalancePlan:
    """Return the moves that balance brokers; none if they are balanced or none may get any."""
    ledger = Ledger(brokers, partitions)
    before = ledger.standing()
    needed = bytes_needed(ledger)
    ledger.budget = int(SPARE * needed)
    if any(ledger.accepts):
        _repair_domains(ledger)
        ledger.find_loose()
        _give_away(ledger)
        _fill_up(ledger)
        _even_numbers(ledger)
        order_leaders(ledger)
    return BalancePlan(tuple(_moves(ledger)), before, ledger.standing(), needed)


def _moves(ledger: Ledger) -> Iterator[PlannedMove]:
    for number, goal in sorted(ledger.served.items()):
        partition = ledger.partitions[number]
        after = tuple([ledger.brokers[each].broker_id for each in ledger.replicas[number]])
        if after == partition.replicas:
            continue
        copies = sum(1 for each in after if each not in partition.replicas)
        yield PlannedMove(
            partition.topic,
            partition.index,
            partition.replicas,
            after,
            partition.leader,
            copies * partition.size,
            goal,
        )


def _repair_domains(ledger: Ledger) -> None:
    for number in range(len(ledger.partitions)):
        if ledger.is_fixed[number]:
            continue
        missing = ledger.missing_domains(number)
        while any(missing):
            step = _best_repair(ledger, number, missing)
            if step is None:
                break
            ledger.move(number, *step, Goal.RACKS)
            missing = ledger.missing_domains(number)


def _best_repair(
    ledger: Ledger, number: int, missing: tuple[int, int, int]
) -> tuple[int, int] | None:
    """Return source and target of a replica that is in the wrong place; None if nothing helps."""
    replicas = ledger.replicas[number]
    best: tuple[tuple[int, int, int], float, int, int] | None = None
    step: tuple[int, int] | None = None
    for position in reversed(range(len(replicas))):
        source = replicas[position]
        if not ledger.is_movable(number, source):
            continue
        for receiver in range(len(ledger.brokers)):
            if receiver in replicas or not ledger.has_room(number, receiver):
                continue
            replicas[position] = receiver
            left = ledger.missing_domains(number)
            replicas[position] = source
            if left >= missing:
                continue
            rank = (left, _fullness(ledger, receiver), receiver, -position)
            if best is None or rank < best:
                best, step = rank, (source, receiver)
    return step


def _fullness(ledger: Ledger, broker: int) -> float:
    """Return how far a broker is above its share of bytes, as a part of the share."""
    return (ledger.held_bytes[broker] - ledger.fair_bytes[broker]) / (ledger.parts[broker] or 1.0)


def _hunger(ledger: Ledger, broker: int) -> tuple[bool, float, int]:
    """Return the rank of a receiver: brokers below their range first, the emptiest first."""
    is_below = ledger.held_bytes[broker] < ledger.bytes_low[broker]
    return (not is_below, _fullness(ledger, broker), broker)


def _receivers(ledger: Ledger) -> list[int]:
    return [each for each, accepts in enumerate(ledger.accepts) if accepts]


def _give_away(ledger: Ledger) -> None:
    """Bring brokers that are above their range into it."""
    stuck: set[int] = set()
    accepting = _receivers(ledger)
    while True:
        above = [
            (-_fullness(ledger, each), each)
            for each in accepting
            if each not in stuck and ledger.held_bytes[each] > ledger.bytes_high[each]
        ]
        if not above:
            return
        source = min(above)[1]
        # One for each broker that is below its range, or one in sum if none is.
        is_stuck = True
        for receiver in sorted(accepting, key=lambda each: _hunger(ledger, each)):
            excess = ledger.held_bytes[source] - ledger.bytes_high[source]
            is_fed = ledger.held_bytes[receiver] >= ledger.bytes_low[receiver]
            if excess <= 0 or (is_fed and not is_stuck):
                break
            if _give(ledger, source, receiver, _fitting_size(ledger, source), excess):
                is_stuck = False
        if is_stuck:
            stuck.add(source)


def _fill_up(ledger: Ledger) -> None:
    """Bring brokers that are below their range into it."""
    stuck: set[int] = set()
    accepting = _receivers(ledger)
    while True:
        below = [
            (_fullness(ledger, each), each)
            for each in accepting
            if each not in stuck and ledger.held_bytes[each] < ledger.bytes_low[each]
        ]
        if not below:
            return
        receiver = min(below)[1]
        lack = ledger.bytes_low[receiver] - ledger.held_bytes[receiver]
        wanted = _fitting_size(ledger, receiver)
        sources = sorted(accepting, key=lambda each: (-_fullness(ledger, each), each))
        for source in sources:
            if _give(ledger, source, receiver, wanted, lack):
                break
        else:
            stuck.add(receiver)


def _fitting_size(ledger: Ledger, broker: int) -> float:
    """Return the size of replica whose moves make bytes and numbers even at the same time."""
    fair = (ledger.replicas_low[broker] + ledger.replicas_high[broker]) / 2
    replicas = ledger.held_replicas[broker] - fair
    surplus = ledger.held_bytes[broker] - ledger.fair_bytes[broker]
    if replicas * surplus <= 0:
        return float("inf")
    return surplus / replicas


def _give(ledger: Ledger, source: int, receiver: int, wanted: float, amount: float) -> bool:
    """Move one replica of about a size, of no more than an amount if there is one; tell if so."""
    candidates = ledger.candidates(source, receiver)
    if source == receiver or not candidates:
        return False
    gap = _fullness(ledger, source) - _fullness(ledger, receiver)
    if gap <= 0:
        return False
    even = gap / (1 / ledger.parts[source] + 1 / ledger.parts[receiver])
    most = min(amount, even)
    # Up to twice of what makes both even they come closer to their shares.
    limit = min(2 * even, float(ledger.budget - ledger.moved_bytes))
    second_choice: int | None = None
    passed_over = 0
    for size, number in _nearest(candidates, min(wanted, most), most):
        if passed_over > PASSED_OVER_MAX or (size > limit and size > most):
            break
        passed_over += second_choice is not None
        if (
            0 < size <= limit
            and (second_choice is None or number not in ledger.served)
            and ledger.may_move(number, source, receiver)
            and ledger.improves_disks(source, receiver, size)
        ):
            if number not in ledger.served:
                ledger.move(number, source, receiver, Goal.DISKS)
                return True
            second_choice = number
    if second_choice is None:
        return False
    ledger.move(second_choice, source, receiver, Goal.DISKS)
    return True


def _nearest(
    movable: Sequence[tuple[int, int]], wanted: float, most: float
) -> Iterator[tuple[int, int]]:
    """Walk replicas: those of at most a size, the nearest to the wanted one first; then others."""
    end = bisect_left(movable, (most, _AFTER_ALL))
    above = min(bisect_left(movable, (wanted, -1)), end)
    below = above - 1
    while below >= 0 or above < end:
        if above >= end or (
            below >= 0 and wanted - movable[below][0] <= movable[above][0] - wanted
        ):
            yield movable[below]
            below -= 1
        else:
            yield movable[above]
            above += 1
    yield from movable[end:]


def _even_numbers(ledger: Ledger) -> None:
    """Even out how many replicas brokers have, with the smallest ones."""
    held, low, high = ledger.held_replicas, ledger.replicas_low, ledger.replicas_high
    accepting = _receivers(ledger)
    stuck: set[int] = set()
    while above := [each for each in accepting if held[each] > high[each] and each not in stuck]:
        source = max(above, key=lambda each: (held[each], -each))
        receivers = sorted(
            (each for each in accepting if held[each] < high[each]),
            key=lambda each: (held[each] - high[each], each),
        )
        if not any(_give_smallest(ledger, source, each) for each in receivers):
            stuck.add(source)
    stuck.clear()
    while below := [each for each in accepting if held[each] < low[each] and each not in stuck]:
        receiver = min(below, key=lambda each: (held[each], each))
        sources = sorted(
            (each for each in accepting if held[each] > low[each]),
            key=lambda each: (low[each] - held[each], each),
        )
        if not any(_give_smallest(ledger, each, receiver) for each in sources):
            stuck.add(receiver)


def _give_smallest(ledger: Ledger, source: int, receiver: int) -> bool:
    """Move the smallest replica that may; tell if there was one."""
    for size, number in ledger.candidates(source, receiver):
        if ledger.moved_bytes + size > ledger.budget and size > 0:
            return False
        if ledger.keeps_disks(source, receiver, size) and ledger.may_move(number, source, receiver):
            ledger.move(number, source, receiver, Goal.REPLICAS)
            return True
    return False
