"""How much may fail at once while the rules must still hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.broker_host import BrokerHost
    from simulator.checker import Record
    from simulator.world import World


def may_lose(world: World, broker: BrokerHost) -> bool:
    """Tell whether acknowledged data of this broker may be lost now, within what is claimed.

    At most min.insync.replicas - 1 replicas of a partition may lose data at once; "at once" ends
    when the loss is known and enough replicas are in sync again. A partition for which one replica
    can acknowledge promises nothing then.
    """
    is_within = all(
        other is broker or not _is_recovering(world, other) for other in world.brokers.values()
    )
    if not is_within and not world.is_violent:
        return False
    for truth in world.checker.truths.values():
        record = truth.record
        if record is None or broker.broker_id not in record.replicas:
            continue
        if not is_within or not _promises_survival(record, broker.broker_id):
            truth.is_forgiven = True
    return True


def _is_recovering(world: World, broker: BrokerHost) -> bool:
    if broker.is_wounded:
        return True
    return broker.wounds > 0 and any(
        record is not None
        and broker.broker_id in record.replicas
        and len(record.isr) < record.min_insync_replicas
        for record in (truth.record for truth in world.checker.truths.values())
    )


def _promises_survival(record: Record, broker_id: int) -> bool:
    """Tell whether another replica has what this one acknowledges. After a minimum was raised, or
    if the others were away at the creation, none has before it is in sync."""
    others = {*record.isr, *record.elr} - {broker_id}
    return record.min_insync_replicas >= 2 and bool(others)
