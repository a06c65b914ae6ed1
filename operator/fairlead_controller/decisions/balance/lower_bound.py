"""How many bytes every plan moves that meets racks, disks and replicas.

Let U and L be the upper and lower end of a broker's range, D what it has, M what has to leave it:
at least the sum of max(M, D - U) leaves brokers, and at least the sum of L - (D - M) comes to
others. The same with numbers of replicas, where the smallest ones would move.
"""

from itertools import chain, islice

from fairlead_controller.decisions.balance.ledger import Ledger


def bytes_needed(ledger: Ledger) -> int:
    """Return a lower bound for the bytes that a plan moves; for a ledger in which nothing has."""
    forced = [0] * len(ledger.brokers)
    for number, replicas in enumerate(ledger.replicas):
        for each in replicas:
            if each >= 0 and not ledger.accepts[each] and not ledger.is_fixed[number]:
                forced[each] += ledger.sizes[number]
    domains = sum(
        max(ledger.missing_domains(number)) * size
        for number, size in enumerate(ledger.sizes)
        if not ledger.is_fixed[number]
    )
    leaving, coming = 0.0, 0.0
    for each, held in enumerate(ledger.held_bytes):
        if ledger.accepts[each]:
            leaving += max(0.0, held - ledger.bytes_high[each])
            coming += max(0.0, ledger.bytes_low[each] - held)
        else:
            leaving += forced[each]
    return max(domains, int(leaving), int(coming), _needed_by_counts(ledger))


def _needed_by_counts(ledger: Ledger) -> int:
    leaving = 0
    missing = 0
    for each, held in enumerate(ledger.held_replicas):
        surplus = max(0, held - ledger.replicas_high[each])
        leaving += sum(size for size, _ in ledger.movable[each][:surplus])
        missing += max(0, ledger.replicas_low[each] - held)
    smallest = sorted(chain.from_iterable(ledger.movable))
    coming = sum(size for size, _ in islice(smallest, missing))
    return max(leaving, coming)
