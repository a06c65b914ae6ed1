"""The controller's mind: what follows from an event in a state. Pure.

The shell (`fairlead_controller.controller`) makes the changes durable, applies and publishes them,
and only then gives the reply.
"""

from dataclasses import replace
from typing import assert_never

from fairlead_controller.config_changes import decide_config_changes
from fairlead_controller.declared_topics import decide_declarations
from fairlead_controller.draft import Draft
from fairlead_controller.draining import decide_drain
from fairlead_controller.elections import (
    decide_balancing,
    decide_log_report,
    decide_offline_report,
    decide_requested_elections,
)
from fairlead_controller.events import (
    AllocateProducerIds,
    AlterConfigs,
    AlterPartition,
    ApplyTopicResources,
    BalanceLeaders,
    ClearIntent,
    ConfirmDeletions,
    CreatePartitions,
    CreateTopics,
    Decision,
    DeclareTopics,
    DeleteTopics,
    DrainBrokers,
    ElectLeaders,
    ElectOnRequest,
    Event,
    FenceBroker,
    RecordIntent,
    RegisterBroker,
    ReportLogs,
    ReportOffline,
    ShutDownBroker,
    UnfenceBroker,
)
from fairlead_controller.intents import decide_intent, decide_intent_cleared
from fairlead_controller.isr_changes import decide_isr_changes
from fairlead_controller.placement import RandomSource
from fairlead_controller.registration import (
    decide_elections,
    decide_fencing,
    decide_registration,
    decide_shutdown,
    decide_unfencing,
)
from fairlead_controller.state import ControllerState
from fairlead_controller.topic_changes import (
    decide_confirmation,
    decide_growth,
    decide_topic_deletion,
)
from fairlead_controller.topic_creation import decide_topic_creation
from fairlead_controller.topic_declaration import decide_topic_resources
from fairlead_model.calls import PRODUCER_ID_BLOCK_SIZE


def decide(  # noqa: PLR0911, PLR0912
    state: ControllerState, event: Event, *, now_ms: int, random: RandomSource
) -> Decision:
    """Give what an event changes and what is answered to it."""
    match event:
        case RegisterBroker():
            return decide_registration(state, event)
        case UnfenceBroker():
            return decide_unfencing(state, event)
        case FenceBroker():
            return decide_fencing(state, event)
        case ShutDownBroker():
            return decide_shutdown(state, event)
        case DrainBrokers():
            return decide_drain(state, event)
        case RecordIntent():
            return decide_intent(state, event)
        case ClearIntent():
            return decide_intent_cleared(state, event)
        case CreateTopics():
            return decide_topic_creation(state, event, random)
        case DeleteTopics():
            return decide_topic_deletion(state, event)
        case CreatePartitions():
            return decide_growth(state, event, random)
        case AlterConfigs():
            return decide_config_changes(state, event)
        case AllocateProducerIds():
            return _decide_producer_ids(state, event)
        case ConfirmDeletions():
            return decide_confirmation(state, event)
        case DeclareTopics():
            return decide_declarations(state, event, random)
        case ApplyTopicResources():
            return decide_topic_resources(state, event, random)
        case ElectLeaders():
            return decide_elections(state)
        case AlterPartition():
            return decide_isr_changes(state, event)
        case ElectOnRequest():
            return decide_requested_elections(state, event)
        case BalanceLeaders():
            return decide_balancing(state, event)
        case ReportOffline():
            return decide_offline_report(state, event)
        case ReportLogs():
            return decide_log_report(state, event)
        case _:
            assert_never(event)


def _decide_producer_ids(state: ControllerState, event: AllocateProducerIds) -> Decision:
    first = state.counters.next_producer_id
    draft = Draft(state)
    draft.add(replace(state.counters, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE))
    draft.explain(f"producer ids from {first} go to broker {event.broker_id}")
    return draft.decision({"first_producer_id": first, "count": PRODUCER_ID_BLOCK_SIZE})
