"""Brokers come and go: registration, cordoning, fencing, unfencing, controlled shutdown.

A registration gives the process a broker epoch that is never given twice. It is idempotent by the
start id: a process that lost the answer, or that meets a new controller, asks again and keeps its
epoch. Another start id is another incarnation: the old one is fenced in the same decision, or
before it if it has very many partitions (`fencing_to_divide`), so it leads nothing by the time the
new one hears its epoch; and if the new one is not known to hold all that the old one acknowledged
(`clean_return`), its replicas stop counting as in sync or eligible in that decision too, or again
before it if they are very many (`decide_unclean_return`). These changes are durable before the
registration is (`table_plan`), so no later start can pass for a clean one.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Final

from fairlead_controller.decisions.clean_return import (
    clean_return,
    is_same_start,
    may_lack_records,
    shares_directory,
)
from fairlead_controller.decisions.cluster_wide_configs import follow_settings
from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import (
    CordonBroker,
    Decision,
    Event,
    FenceBroker,
    FenceByOrder,
    FenceReason,
    LeavePartitions,
    NoteDirectory,
    PartitionMove,
    RegisterBroker,
    ReturnUnclean,
    ShutDownBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.leadership import (
    elect_in,
    elect_leaderless,
    elect_on,
    moved,
    remove_from_partitions,
)
from fairlead_controller.decisions.minimum_in_sync import spread_minimum
from fairlead_controller.decisions.record_rules import BrokenDecisionError
from fairlead_controller.decisions.restored_holders import (
    awaiting_recovery,
    awaits_testimony,
    holders_found,
)
from fairlead_controller.decisions.state import BrokerConfirmed, BrokerLeaving, ControllerState
from fairlead_controller.decisions.tables.table_bytes import (
    DIRECTORY_ID_BYTES_MAX,
    REGISTRATION_BYTES_MAX,
    broker_bytes,
    is_fitting_directory_id,
)
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import BrokerChanged, PartitionChanged, TopicImage
from fairlead_model.features import unsupported_levels, who_reads
from fairlead_model.host_address import join_address
from fairlead_model.ids import BrokerEpoch, BrokerId
from fairlead_model.session.refusals import RefusalCode, RefusedError

LEFT_PER_DECISION_MAX: Final = 5_000
"""Partitions that one decision takes from a broker that stops or is dead: a quarter of a second or
so, in which the controller hears nobody and renews no Lease."""


def decide_registration(
    state: ControllerState, event: RegisterBroker, room: TableRoom | None = None
) -> Decision:
    """Admit a broker, or say why not; the reply holds its broker epoch."""
    asking = event.registration
    problem = registration_problem(state, event)
    if problem is not None:
        return Decision(reply=problem)
    known = state.image.brokers.get(asking.broker_id)
    draft = Draft(state)
    if known is not None and is_same_start(known, asking):
        _register_again(draft, known, event)
        return draft.decision({"broker_epoch": known.broker_epoch})
    holdings = holders_found(state, known, event)
    if room is not None:
        try:
            room.take([BrokerChanged(asking), *holdings])
        except RefusedError as refusal:
            return Decision(reply=refusal)
    is_clean, why = clean_return(known, asking)
    _end_incarnation(draft, event, known, is_clean=is_clean, why=why)
    epoch = state.counters.next_broker_epoch
    admitted = replace(
        asking,
        broker_epoch=epoch,
        fenced=True,
        in_controlled_shutdown=False,
        is_clean=is_clean,
        # It does not know dynamic configs yet; it reports whether it is cordoned before it is in
        # service.
        is_cordoned=asking.is_cordoned if known is None else known.is_cordoned,
    )
    draft.add(
        replace(state.counters, next_broker_epoch=epoch + 1),
        BrokerChanged(admitted),
        BrokerConfirmed(asking.broker_id),
    )
    if asking.broker_id in state.unconfirmed:
        elect_on(draft, asking.broker_id, f"nobody waits for broker {asking.broker_id} any more")
    # After its removal above, which went by the settings that held until now.
    follow_settings(draft, state.image)
    # Anew, because other records hold meanwhile where the minimum is another one.
    draft.add(*holders_found(draft.state, known, event))
    if holdings:
        draft.explain(
            f"broker {asking.broker_id} holds {len(holdings)} partitions that the restored "
            "metadata does not name it for: it is a replica of them"
        )
    _note_directory(draft, asking)
    draft.explain(f"broker {asking.broker_id} is registered with epoch {epoch}")
    if awaits_testimony(state) and not awaits_testimony(draft.state):
        cause = "all brokers of the restored metadata have said what they hold"
        elect_leaderless(draft, awaiting_recovery(draft.state), cause)
    return draft.decision({"broker_epoch": epoch})


def _register_again(draft: Draft, known: BrokerRegistration, event: RegisterBroker) -> None:
    """Take what a start that is registered says of itself now."""
    asking = event.registration
    is_unconfirmed = asking.broker_id in draft.state.unconfirmed
    _remove_unclean(draft, event)
    # Another process of the same start may have other addresses and another rack, and a controller
    # that did not know of these features may have registered it, or one that did not know the zone
    # of its node. One that does not know it now has not heard that it has none.
    current = replace(
        known,
        endpoints=asking.endpoints,
        features=asking.features,
        host_name=asking.host_name,
        rack=asking.rack or known.rack,
        allows_unclean_election=asking.allows_unclean_election,
    )
    before = draft.state.image
    if current != known:
        draft.add(BrokerChanged(current))
        follow_settings(draft, before)
    if is_unconfirmed:
        draft.add(BrokerConfirmed(asking.broker_id))
        elect_on(draft, asking.broker_id, f"broker {asking.broker_id} is back")


def _end_incarnation(
    draft: Draft,
    event: RegisterBroker,
    known: BrokerRegistration | None,
    *,
    is_clean: bool,
    why: str,
) -> None:
    """Fence the start of the broker before this one, and remove replicas that may lack records."""
    broker_id = event.registration.broker_id
    if known is not None:
        # It must not be elected while other brokers become leaders of its partitions.
        draft.add(BrokerChanged(replace(known, fenced=True)))
        draft.explain(
            f"broker {broker_id} started anew, epoch {known.broker_epoch} ends; it returns "
            f"{'clean' if is_clean else 'unclean'}: {why}"
        )
    remove_from_partitions(
        draft,
        broker_id,
        f"broker {broker_id} started anew",
        is_unclean=may_lack_records(known, event, is_clean=is_clean),
        all_or_none=True,
    )


def _remove_unclean(draft: Draft, event: RegisterBroker) -> None:
    """Remove replicas that a repeated registration reports as lost from ISR and ELR."""
    damaged = set(event.unclean)
    if damaged:
        remove_from_partitions(
            draft,
            event.registration.broker_id,
            f"broker {event.registration.broker_id} cannot use its replica",
            is_unclean=lambda topic, index: True,
            keeps_leading=lambda topic, index: (topic.name, index) not in damaged,
            all_or_none=True,
        )


def registration_problem(state: ControllerState, event: RegisterBroker) -> RefusedError | None:
    """Say why a broker may not register, whatever it has seen; None if it may."""
    asking = event.registration
    if event.cluster_id and event.cluster_id != state.image.cluster_id:
        return RefusedError(
            RefusalCode.INCONSISTENT_CLUSTER_ID,
            f"broker {asking.broker_id} belongs to cluster {event.cluster_id}, this is cluster "
            f"{state.image.cluster_id}; its log.dirs are those of another cluster: give it its own "
            "ones, or delete what is there (on Kubernetes: the volume claim and the pod) if nobody "
            "needs it",
        )
    if not asking.start_id or not asking.endpoints:
        return RefusedError(
            RefusalCode.INVALID_REQUEST, "a registration needs a start id and endpoints"
        )
    for directory_id in (asking.directory_id, *asking.directory_ids):
        if not is_fitting_directory_id(directory_id):
            return RefusedError(
                RefusalCode.INVALID_REQUEST,
                f"broker {asking.broker_id}: directory.id has {len(directory_id)} characters, "
                f"{DIRECTORY_ID_BYTES_MAX} fit",
            )
    if broker_bytes(asking) > REGISTRATION_BYTES_MAX:
        return RefusedError(
            RefusalCode.INVALID_REQUEST,
            f"the registration of broker {asking.broker_id} takes {broker_bytes(asking)} bytes, "
            f"{REGISTRATION_BYTES_MAX} fit: shorten its advertised.listeners or broker.rack",
        )
    if problem := unsupported_levels(state.image.features, asking.features):
        return RefusedError(
            RefusalCode.UNSUPPORTED_VERSION,
            f"broker {asking.broker_id} does not support the feature levels of this cluster: "
            f"{problem}; run {who_reads(state.image.features)}",
        )
    known = state.image.brokers.get(asking.broker_id)
    if known is None or is_same_start(known, asking) or not event.is_predecessor_alive:
        return None
    if shares_directory(known, asking) and known.host_name == asking.host_name:
        # The same disk on the same host: its lock proves that the older process is gone.
        return None
    where = ", ".join(join_address(end.host, end.port) for end in known.client_endpoints)
    return RefusedError(
        RefusalCode.DUPLICATE_BROKER_REGISTRATION,
        f"broker id {asking.broker_id} is in use by the broker at {where} on host "
        f"{known.host_name!r}, which is alive; give this broker another node.id",
    )


def _note_directory(draft: Draft, asking: BrokerRegistration) -> None:
    """Record another disk incarnation in every partition that the broker holds.

    It is told to nobody but people, so it may be written in parts.
    """
    changes: list[PartitionChanged] = []
    for topic, index in draft.state.image.replicas_of(asking.broker_id):
        partition = topic.partitions[index]
        directories = tuple(
            asking.directory_id if replica == asking.broker_id else directory
            for replica, directory in zip(
                partition.replicas,
                partition.directories or ("",) * len(partition.replicas),
                strict=True,
            )
        )
        changed = partition.changed(directories=directories)
        if changed is not partition and len(changes) >= LEFT_PER_DECISION_MAX:
            draft.leave(NoteDirectory(asking.broker_id))
            break
        if changed is not partition:
            changes.append(PartitionChanged(topic.topic_id, index, changed))
    draft.add(*changes)


def decide_directory(state: ControllerState, event: NoteDirectory) -> Decision:
    """Record the present disk of a broker in more of its partitions."""
    draft = Draft(state)
    known = state.image.brokers.get(event.broker_id)
    if known is not None:
        _note_directory(draft, known)
    return draft.decision({})


def decide_unfencing(state: ControllerState, event: UnfenceBroker) -> Decision:
    """Put a broker into service and return it the leaderless partitions that it may lead."""
    known = state.image.brokers.get(event.broker_id)
    if known is None or known.broker_epoch != event.broker_epoch:
        return Decision(reply=_stale_epoch(event.broker_id, event.broker_epoch))
    if not known.fenced:
        return Decision(reply={})
    if event.broker_id in state.ordered_out:
        return Decision(
            reply=RefusedError(
                RefusalCode.POLICY_VIOLATION, f"broker {event.broker_id} is fenced by order"
            )
        )
    draft = Draft(state)
    # A stop that was announced before the broker was fenced is over: this may be another process
    # of the same start, and no broker that is stopping asks for service.
    in_service = replace(known, fenced=False, in_controlled_shutdown=False)
    draft.add(BrokerChanged(in_service), BrokerConfirmed(event.broker_id))
    elected = elect_on(draft, event.broker_id, f"broker {event.broker_id} is in service")
    draft.explain(f"broker {event.broker_id} is in service, leader of {elected} partitions anew")
    return draft.decision({})


def decide_cordon(state: ControllerState, event: CordonBroker) -> Decision:
    """Give a broker nothing new from now on, or again; what it has stays (KIP-1066)."""
    known = state.image.brokers.get(event.broker_id)
    if known is None or known.broker_epoch != event.broker_epoch:
        return Decision(reply=_stale_epoch(event.broker_id, event.broker_epoch))
    draft = Draft(state)
    if known.is_cordoned != event.is_cordoned:
        draft.add(BrokerChanged(replace(known, is_cordoned=event.is_cordoned)))
        draft.explain(
            f"broker {event.broker_id} gets no new replicas: its log directories are cordoned"
            if event.is_cordoned
            else f"broker {event.broker_id} gets new replicas again"
        )
    return draft.decision({})


def fencing_to_divide(state: ControllerState, event: Event) -> FenceBroker | None:
    """Return the fencing that an event asks for or brings about, if one decision is not enough."""
    if isinstance(event, FenceBroker):
        fencing = event
    elif isinstance(event, RegisterBroker):
        asking = event.registration
        known = state.image.brokers.get(asking.broker_id)
        if known is None or is_same_start(known, asking):
            return None
        if registration_problem(state, event) is not None:
            return None
        fencing = FenceBroker(known.broker_id, known.broker_epoch, FenceReason.STARTED_ANEW)
    else:
        return None
    if not _may_be_fenced(state, fencing) or parts_max(state, fencing.broker_id) == 0:
        return None
    return fencing


def parts_max(state: ControllerState, broker_id: BrokerId) -> int:
    """Return how many parts may go before the decision that fences a broker; 0 for most."""
    load = state.loads.get(broker_id)
    return 0 if load is None else (load.replicas - 1) // LEFT_PER_DECISION_MAX


def decide_leaving(state: ControllerState, event: LeavePartitions) -> Decision:
    """Take some of its partitions from a broker that is about to be fenced.

    In the store nothing but the records of these partitions changes, as where a broker in service
    leaves in-sync sets and leaderships: so it is in service until the decision that fences it,
    which takes whatever is left, or came back meanwhile. A controller that ends before that leaves
    nothing unfinished: the next one hears from the broker, or fences it. The reply tells whether
    one decision can take the rest.
    """
    if not _may_be_fenced(state, event):
        return Decision(reply={"rest_fits": True})
    draft = Draft(state)
    if event.broker_id not in state.leaving:
        # Others that die at the same time leave nothing to it.
        draft.add(BrokerLeaving(event.broker_id))
    held = partitions_to_take(state, event.broker_id)
    now, later = held[:LEFT_PER_DECISION_MAX], held[LEFT_PER_DECISION_MAX:]
    cause = f"broker {event.broker_id} is fenced"
    lost = remove_from_partitions(draft, event.broker_id, cause, partitions=now)
    draft.explain(
        f"broker {event.broker_id} is about to be fenced: {event.reason}; "
        f"{lost} partitions change leader, {len(later)} come later"
    )
    return draft.decision({"rest_fits": len(later) <= LEFT_PER_DECISION_MAX})


def decide_unclean_return(state: ControllerState, event: ReturnUnclean) -> Decision:
    """Remove some replicas of a broker that returns without all records, before it registers.

    It is out of service, so none of them comes in sync anew. The registration removes whatever is
    left; if there is none, the next start of the broker finds these replicas doubtful, and others
    not: that asks for more than the verdict on it would, and for no less. The reply tells whether
    one decision can remove the rest.
    """
    asking = event.event.registration
    known = state.image.brokers.get(asking.broker_id)
    draft = Draft(state)
    if known is None or known.broker_epoch != event.broker_epoch or not known.fenced:
        return draft.decision({"rest_fits": True})
    if is_same_start(known, asking) or registration_problem(state, event.event) is not None:
        return draft.decision({"rest_fits": True})
    is_clean, why = clean_return(known, asking)
    may_lack = may_lack_records(known, event.event, is_clean=is_clean)
    held = [
        (topic, index)
        for topic, index in state.image.replicas_of(asking.broker_id)
        if asking.broker_id in (*topic.partitions[index].isr, *topic.partitions[index].elr)
        and may_lack(topic, index)
    ]
    now, later = held[:LEFT_PER_DECISION_MAX], held[LEFT_PER_DECISION_MAX:]
    if later:
        cause = f"broker {asking.broker_id} started anew"
        remove_from_partitions(
            draft,
            asking.broker_id,
            cause,
            is_unclean=lambda topic, index: True,
            partitions=now,
            all_or_none=True,
        )
        draft.explain(
            f"{cause}, and has not stopped in good order or lost replicas ({why}): {len(now)} of "
            f"its partitions do not count on it any more, {len(later)} come later"
        )
    return draft.decision({"rest_fits": len(later) <= LEFT_PER_DECISION_MAX})


def _may_be_fenced(state: ControllerState, event: FenceBroker | LeavePartitions) -> bool:
    """Tell whether this start of a broker is the present one, and in service."""
    known = state.image.brokers.get(event.broker_id)
    return known is not None and known.broker_epoch == event.broker_epoch and not known.fenced


def partitions_to_take(state: ControllerState, broker_id: BrokerId) -> list[tuple[TopicImage, int]]:
    """Return the partitions where a dead broker is in sync, those first that others wait for.

    First those that another replica in sync can lead; then those whose leader waits for it with
    what is to be acknowledged; last those that nobody else can lead. Where nobody leads, mostly
    nothing changes.
    """
    led, followed, alone = [], [], []
    for topic, index in state.image.replicas_of(broker_id):
        partition = topic.partitions[index]
        if broker_id not in partition.isr or not partition.has_leader:
            continue
        if partition.leader != broker_id:
            followed.append((topic, index))
        elif len(partition.isr) > 1:
            led.append((topic, index))
        else:
            alone.append((topic, index))
    return led + followed + alone


def decide_fencing(state: ControllerState, event: FenceBroker) -> Decision:
    """Take a dead broker out of service; nothing happens to a later incarnation."""
    if not _may_be_fenced(state, event):
        return Decision(reply={})
    known = state.image.brokers[event.broker_id]
    draft = Draft(state)
    draft.add(BrokerChanged(replace(known, fenced=True)))
    lost = remove_from_partitions(draft, event.broker_id, f"broker {event.broker_id} is fenced")
    if event.broker_id in state.unconfirmed:
        # Until now unclean elections waited for it, also where it is not in sync but eligible.
        elect_on(draft, event.broker_id, f"broker {event.broker_id} is fenced")
    draft.explain(
        f"broker {event.broker_id} is fenced: {event.reason}; {lost} partitions change leader"
    )
    return draft.decision({})


def decide_shutdown(state: ControllerState, event: ShutDownBroker) -> Decision:
    """Move the leaders of a broker that is about to stop; it asks again until none remain.

    Where no other replica is in sync but a live one may soon be, the broker keeps leading and
    waits. Where no other replica can lead at all, waiting would not help, and its stop ends the
    leadership. One decision changes at most `LEFT_PER_DECISION_MAX` partitions, those first that
    the broker leads; the broker also asks again while it is in sync in others.
    """
    known = state.image.brokers.get(event.broker_id)
    if known is None or known.broker_epoch != event.broker_epoch:
        return Decision(reply=_stale_epoch(event.broker_id, event.broker_epoch))
    draft = Draft(state)
    if not known.in_controlled_shutdown:
        draft.add(BrokerChanged(replace(known, in_controlled_shutdown=True)))
    leaving = _partitions_to_leave(draft.state, event.broker_id)
    now, later = leaving[:LEFT_PER_DECISION_MAX], leaving[LEFT_PER_DECISION_MAX:]
    cause = f"broker {event.broker_id} is stopping"
    lost = remove_from_partitions(draft, event.broker_id, cause, partitions=now)
    led = sum(
        topic.partitions[index].leader == event.broker_id
        for topic, index in draft.state.image.replicas_of(event.broker_id)
    )
    waiting = led - sum(topic.partitions[index].leader == event.broker_id for topic, index in later)
    put_off = sum(topic.partitions[index].has_leader for topic, index in later)
    if lost or not known.in_controlled_shutdown:
        draft.explain(
            f"{cause}; {lost} partitions change leader, {waiting} wait for a replica in sync"
            + (f", {put_off} come later" if put_off else "")
        )
    return draft.decision({"remaining_leaders": waiting + put_off})


def _partitions_to_leave(
    state: ControllerState, broker_id: BrokerId
) -> list[tuple[TopicImage, int]]:
    """Return the partitions where a stopping broker is in sync and need not wait for others.

    First those that it leads; last those without a leader, where mostly nothing changes.
    """
    led, followed, leaderless = [], [], []
    for topic, index in state.image.replicas_of(broker_id):
        partition = topic.partitions[index]
        if broker_id not in partition.isr:
            continue
        if not partition.has_leader:
            leaderless.append((topic, index))
        elif partition.leader != broker_id:
            followed.append((topic, index))
        elif not _awaits_replica_in_sync(state, topic, index):
            led.append((topic, index))
    return led + followed + leaderless


def _awaits_replica_in_sync(state: ControllerState, topic: TopicImage, index: int) -> bool:
    """Tell whether nobody can take over from the leader now, but a live replica may soon."""
    partition = topic.partitions[index]
    may_lead = state.electability(topic.topic_id, index)
    others = [other for other in partition.replicas if other != partition.leader]
    live = [other for other in others if may_lead(other)]
    return bool(live) and not any(
        other in partition.isr or other in partition.elr for other in live
    )


def decide_elections(state: ControllerState) -> Decision:
    """Take leaderships from brokers that are out of service, in a state that was just loaded.

    First every partition gets the effective minimum of in-sync replicas again: a crash between the
    tables of its last change may have left different ones. Unconfirmed brokers keep their
    leaderships. They have one session timeout to come back, and mostly do, because it was the
    controller that restarted. An order to fence a broker may be carried out only in part.
    """
    draft = Draft(state)
    with suppress(BrokenDecisionError):  # The draft has noted it; elections do not wait for it.
        spread_minimum(draft)
    state = draft.state
    moves: list[PartitionMove] = []
    for topic in sorted(state.image.topics(), key=lambda topic: topic.topic_id):
        for index, partition in enumerate(topic.partitions):
            if partition.has_leader and not state.image.is_live(partition.leader):
                cause = f"broker {partition.leader} is out of service"
                moves += moved(topic, index, elect_in(state, topic, index), cause)
    draft.move(moves)
    for broker_id in sorted(state.ordered_out):
        known = state.image.brokers.get(broker_id)
        if known is not None and not known.fenced:
            parts = parts_max(state, broker_id)
            draft.leave(FenceByOrder(broker_id, known.broker_epoch, parts))
    return draft.decision({})


def _stale_epoch(broker_id: BrokerId, broker_epoch: BrokerEpoch) -> RefusedError:
    return RefusedError(
        RefusalCode.STALE_BROKER_EPOCH,
        f"epoch {broker_epoch} of broker {broker_id} is not the current one",
    )
