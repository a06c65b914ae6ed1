"""Intents: acts that no compare-and-swap fences are announced in the store before they are done.

A controller that was deposed cannot write its intent, so it does not act. The next one reads what
was announced, and whoever acts on its behalf finishes or drops it. Pure.
"""

from typing import Final

from fairlead_controller.draft import Draft
from fairlead_controller.events import ClearIntent, Decision, RecordIntent
from fairlead_controller.state import ControllerState, Intent, IntentChanged
from fairlead_model.refusals import RefusalCode, RefusedError

INTENTS_MAX: Final = 100


def decide_intent(state: ControllerState, event: RecordIntent) -> Decision:
    """Keep an intent; the reply holds its id. One that is kept already is the same one."""
    intent = Intent(event.action, event.target, event.at_ms)
    for known_id, known in state.intents.items():
        if (known.action, known.target) == (intent.action, intent.target):
            return Decision(reply={"id": known_id})
    if len(state.intents) >= INTENTS_MAX:
        return Decision(
            reply=RefusedError(
                RefusalCode.POLICY_VIOLATION, f"{INTENTS_MAX} intents are open already"
            )
        )
    draft = Draft(state)
    draft.add(IntentChanged(event.intent_id, intent))
    draft.explain(f"about to {event.action} {event.target}")
    return draft.decision({"id": event.intent_id})


def decide_intent_cleared(state: ControllerState, event: ClearIntent) -> Decision:
    """Forget an intent; the reply says whether it was there."""
    draft = Draft(state)
    is_known = event.intent_id in state.intents
    if is_known:
        draft.add(IntentChanged(event.intent_id, None))
    return draft.decision({"was_known": is_known})
