"""Intents announce in the store an act that no compare-and-swap fences, before it is done. Pure.

A deposed controller cannot write its intent, so it does not act. The next controller reads the
intents, and the component that acts for it finishes or drops them.
"""

from typing import Final

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import ClearIntent, Decision, RecordIntent
from fairlead_controller.decisions.state import ControllerState, Intent, IntentChanged
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.session.refusals import RefusalCode, RefusedError

INTENTS_MAX: Final = 100
REMOVE_BROKER: Final = "remove-broker"
"""The action for a broker that its BrokerPool gives up (`scale_down`); the target is the pool."""


def decide_intent(
    state: ControllerState, event: RecordIntent, room: TableRoom | None = None
) -> Decision:
    """Keep an intent; the reply holds its id. A repeated one keeps its first id."""
    intent = Intent(event.action, event.target, event.at_ms)
    for known_id, known in state.intents.items():
        if (known.action, known.target) == (intent.action, intent.target):
            return Decision(reply={"id": known_id})
    # Those of brokers that leave stay for long, and there are no more of them than brokers.
    if sum(each.action != REMOVE_BROKER for each in state.intents.values()) >= INTENTS_MAX:
        return Decision(
            reply=RefusedError(
                RefusalCode.POLICY_VIOLATION, f"{INTENTS_MAX} intents are open already"
            )
        )
    draft = Draft(state, room)
    try:
        draft.add(IntentChanged(event.intent_id, intent))
    except RefusedError as refusal:
        return Decision(reply=refusal)
    draft.explain(f"about to {event.action} {event.target}")
    return draft.decision({"id": event.intent_id})


def decide_intent_cleared(state: ControllerState, event: ClearIntent) -> Decision:
    """Forget an intent; the reply says whether it was there."""
    draft = Draft(state)
    is_known = event.intent_id in state.intents
    if is_known:
        draft.add(IntentChanged(event.intent_id, None))
    return draft.decision({"was_known": is_known})
