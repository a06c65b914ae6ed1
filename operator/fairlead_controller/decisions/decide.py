"""The entry point of all decisions: what follows from an event in a state. Pure.

The shell (`fairlead_controller.controller`) makes the changes durable, applies and publishes them,
and only then sends the reply.
"""

from dataclasses import replace
from typing import Final, assert_never

from fairlead_controller.decisions.cluster_wide_configs import (
    decide_declared_configs,
    decide_limits,
)
from fairlead_controller.decisions.config_changes import decide_config_changes
from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.draining import decide_drain
from fairlead_controller.decisions.events import (
    AdvanceReassignments,
    AllocateProducerIds,
    AlterClientQuotas,
    AlterConfigs,
    AlterCredentials,
    AlterPartition,
    AlterReassignments,
    ApplyTopicResources,
    ApplyUserResources,
    BalanceLeaders,
    CallMovesBack,
    ClearIntent,
    ConfirmDeletions,
    CordonBroker,
    CreateAcls,
    CreatePartitions,
    CreateTopics,
    Decision,
    DeclareBrokerConfigs,
    DeclareTopics,
    DeleteAcls,
    DeleteTopics,
    DrainBrokers,
    DrainLeaders,
    ElectLeaderless,
    ElectLeaders,
    ElectOnRequest,
    Event,
    FenceBroker,
    FenceByOrder,
    LeavePartitions,
    LimitCluster,
    ListReassignments,
    NoteDirectory,
    RecordIntent,
    RegisterBroker,
    RelieveReplicas,
    ReportLogs,
    ReportOffline,
    ReturnUnclean,
    ScaleDownPool,
    ShutDownBroker,
    SpreadMinimum,
    UnfenceBroker,
    UnregisterBroker,
    UpdateFeatures,
)
from fairlead_controller.decisions.feature_updates import decide_feature_update
from fairlead_controller.decisions.full_disks import decide_relief
from fairlead_controller.decisions.intents import decide_intent, decide_intent_cleared
from fairlead_controller.decisions.isr_changes import decide_isr_changes
from fairlead_controller.decisions.leadership import decide_further_elections
from fairlead_controller.decisions.minimum_in_sync import decide_spread
from fairlead_controller.decisions.ordered_fencing import decide_ordered_fencing
from fairlead_controller.decisions.placement import RandomSource
from fairlead_controller.decisions.reassignment.evacuation import (
    decide_drained_leaders,
    decide_moves_back,
)
from fairlead_controller.decisions.reassignment.progress import decide_progress
from fairlead_controller.decisions.reassignment.requests import (
    decide_listing,
    decide_reassignments,
)
from fairlead_controller.decisions.reassignment.scale_down import decide_scale_down
from fairlead_controller.decisions.registration import (
    decide_cordon,
    decide_directory,
    decide_elections,
    decide_fencing,
    decide_leaving,
    decide_registration,
    decide_shutdown,
    decide_unclean_return,
    decide_unfencing,
)
from fairlead_controller.decisions.requested_elections import (
    decide_balancing,
    decide_log_report,
    decide_offline_report,
    decide_requested_elections,
)
from fairlead_controller.decisions.security.mutation_quota import MutationAllowance
from fairlead_controller.decisions.security.security_changes import decide_security_change
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_controller.decisions.topics.creation import decide_topic_creation
from fairlead_controller.decisions.topics.declared_topics import decide_declarations
from fairlead_controller.decisions.topics.deletion_and_growth import (
    decide_confirmation,
    decide_growth,
    decide_topic_deletion,
)
from fairlead_controller.decisions.topics.resource_changes import decide_topic_resources
from fairlead_controller.decisions.unregistration import decide_unregistration
from fairlead_model.session.calls import PRODUCER_ID_BLOCK_SIZE

PRODUCER_IDS_PER_REIGN: Final = 1 << 32
"""Enough for 2^31 reigns. A reign that allocates more continues with the ids of the next one."""


def decide(  # noqa: PLR0911, PLR0912
    state: ControllerState,
    event: Event,
    *,
    now_ms: int,
    random: RandomSource,
    room: TableRoom | None = None,
    allowance: MutationAllowance | None = None,
) -> Decision:
    """Return what an event changes, and the reply; `room` is None where tables have no bound."""
    match event:
        case RegisterBroker() | ReturnUnclean():
            return _decide_admission(state, event, room)
        case (
            UnfenceBroker() | FenceBroker() | LeavePartitions() | CordonBroker() | ShutDownBroker()
        ):
            return _decide_service(state, event)
        case DrainBrokers() | DrainLeaders() | CallMovesBack():
            return _decide_draining(state, event)
        case LimitCluster():
            return decide_limits(state, event)
        case RecordIntent():
            return decide_intent(state, event, room)
        case ClearIntent():
            return decide_intent_cleared(state, event)
        case CreateTopics() | DeleteTopics() | CreatePartitions():
            return _decide_topic_request(state, event, random, room, allowance)
        case AlterConfigs():
            return decide_config_changes(state, event, room)
        case DeclareBrokerConfigs():
            return decide_declared_configs(state, event, room)
        case AllocateProducerIds():
            return _decide_producer_ids(state, event)
        case ConfirmDeletions():
            return decide_confirmation(state, event)
        case DeclareTopics():
            return decide_declarations(state, event, random, room)
        case ApplyTopicResources():
            return decide_topic_resources(state, event, random, room)
        case ElectLeaders():
            return decide_elections(state)
        case ElectLeaderless() | NoteDirectory() | SpreadMinimum() | FenceByOrder():
            return _decide_rest(state, event)
        case AlterPartition():
            return decide_isr_changes(state, event)
        case ElectOnRequest():
            return decide_requested_elections(state, event)
        case BalanceLeaders():
            return decide_balancing(state, event)
        case AlterReassignments() | ListReassignments() | AdvanceReassignments() | ScaleDownPool():
            return _decide_moves(state, event, room)
        case ReportOffline() | RelieveReplicas():
            return _decide_offline(state, event)
        case ReportLogs():
            return decide_log_report(state, event)
        case UpdateFeatures():
            return decide_feature_update(state, event)
        case UnregisterBroker():
            return decide_unregistration(state, event)
        case (
            CreateAcls()
            | DeleteAcls()
            | AlterCredentials()
            | AlterClientQuotas()
            | ApplyUserResources()
        ):
            return decide_security_change(state, event, room)
        case _:
            assert_never(event)


def _decide_rest(
    state: ControllerState,
    event: ElectLeaderless | NoteDirectory | SpreadMinimum | FenceByOrder,
) -> Decision:
    """Return what changes where a decision before has left a part."""
    match event:
        case ElectLeaderless():
            return decide_further_elections(state, event)
        case NoteDirectory():
            return decide_directory(state, event)
        case SpreadMinimum():
            return decide_spread(state)
        case FenceByOrder():
            return decide_ordered_fencing(state, event)


def _decide_draining(
    state: ControllerState, event: DrainBrokers | DrainLeaders | CallMovesBack
) -> Decision:
    match event:
        case DrainBrokers():
            return decide_drain(state, event)
        case DrainLeaders():
            return decide_drained_leaders(state, event)
        case CallMovesBack():
            return decide_moves_back(state, event)


def _decide_offline(state: ControllerState, event: ReportOffline | RelieveReplicas) -> Decision:
    match event:
        case ReportOffline():
            return decide_offline_report(state, event)
        case RelieveReplicas():
            return decide_relief(state, event)


def _decide_moves(
    state: ControllerState,
    event: AlterReassignments | ListReassignments | AdvanceReassignments | ScaleDownPool,
    room: TableRoom | None,
) -> Decision:
    """Return what changes of partitions that move, or are to."""
    match event:
        case AlterReassignments():
            return decide_reassignments(state, event, room)
        case ListReassignments():
            return decide_listing(state, event)
        case AdvanceReassignments():
            return decide_progress(state, event, room)
        case ScaleDownPool():
            return decide_scale_down(state, event, room)


def _decide_admission(
    state: ControllerState, event: RegisterBroker | ReturnUnclean, room: TableRoom | None
) -> Decision:
    match event:
        case RegisterBroker():
            return decide_registration(state, event, room)
        case ReturnUnclean():
            return decide_unclean_return(state, event)


def _decide_service(
    state: ControllerState,
    event: UnfenceBroker | FenceBroker | LeavePartitions | CordonBroker | ShutDownBroker,
) -> Decision:
    match event:
        case UnfenceBroker():
            return decide_unfencing(state, event)
        case FenceBroker():
            return decide_fencing(state, event)
        case LeavePartitions():
            return decide_leaving(state, event)
        case CordonBroker():
            return decide_cordon(state, event)
        case ShutDownBroker():
            return decide_shutdown(state, event)


def _decide_topic_request(
    state: ControllerState,
    event: CreateTopics | DeleteTopics | CreatePartitions,
    random: RandomSource,
    room: TableRoom | None,
    allowance: MutationAllowance | None,
) -> Decision:
    """Return what a request of Kafka's protocol changes of topics, as far as a quota allows it."""
    match event:
        case CreateTopics():
            return decide_topic_creation(state, event, random, room, allowance)
        case DeleteTopics():
            return decide_topic_deletion(state, event, allowance)
        case CreatePartitions():
            return decide_growth(state, event, random, room, allowance)


def _decide_producer_ids(state: ControllerState, event: AllocateProducerIds) -> Decision:
    # Each reign has its own ids: if its tables went back in time, it gives no id out twice.
    own = (state.controller_epoch - 1) * PRODUCER_IDS_PER_REIGN
    first = max(state.counters.next_producer_id, own)
    draft = Draft(state)
    draft.add(replace(state.counters, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE))
    draft.explain(f"producer ids from {first} go to broker {event.broker_id}")
    return draft.decision({"first_producer_id": first, "count": PRODUCER_ID_BLOCK_SIZE})
