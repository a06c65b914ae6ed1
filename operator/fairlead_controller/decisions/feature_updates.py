"""Raising and lowering feature levels on a person's word (UpdateFeatures, KIP-584, KIP-778). Pure.

The check and the change are one decision on the table that also holds the registrations, and a
broker that registers later is checked against the level in the same table, so no broker can
register in between (R28). All updates of a request take effect, or none.
"""

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import Decision, UpdateFeatures
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import FeaturesChanged
from fairlead_model.features import FEATURES, supports
from fairlead_model.session.calls import FeatureUpdate, FeatureUpgradeType
from fairlead_model.session.refusals import RefusalCode, RefusedError


def decide_feature_update(state: ControllerState, event: UpdateFeatures) -> Decision:
    """Give features other levels; the first update that cannot be refuses them all."""
    finalized = state.image.features
    levels: dict[str, int] = {}
    for update in event.call["updates"]:
        if update["feature"] in levels:
            return Decision(
                reply=RefusedError(
                    RefusalCode.INVALID_REQUEST,
                    f"feature {update['feature']} is named more than once in the request",
                )
            )
        if problem := update_problem(state, update):
            return Decision(reply=RefusedError(RefusalCode.INVALID_UPDATE_VERSION, problem))
        levels[update["feature"]] = update["level"]
    changed = {name: level for name, level in levels.items() if level != finalized.level(name)}
    draft = Draft(state)
    if changed and not event.call["validate_only"]:
        for name, level in changed.items():
            draft.explain(f"feature {name} is at level {level} after {finalized.level(name)}")
        draft.add(FeaturesChanged(finalized.with_levels(changed)))
    return draft.decision({})


def update_problem(state: ControllerState, update: FeatureUpdate) -> str:
    """Say why a feature cannot have a level; empty if it can."""
    name, level = update["feature"], update["level"]
    feature = FEATURES.get(name)
    if feature is None:
        names = ", ".join(FEATURES)
        return f"this cluster has no feature {name!r}; it has {names}"
    if not feature.lowest <= level <= feature.highest:
        return (
            f"level {level} of {name} is not supported: this controller supports "
            f"{feature.lowest} to {feature.highest}"
        )
    present, kind = state.image.features.level(name), update["upgrade_type"]
    if kind not in set(FeatureUpgradeType):
        return f"{name}: {kind} is no type of an upgrade"
    if level < present and not feature.may_fall:
        return (
            f"{name} is at level {present} and never falls: older releases could misread what has "
            "been written since"
        )
    if level < present and kind == FeatureUpgradeType.UPGRADE:
        return f"{name} is at level {present}: an upgrade to {level} would be a downgrade"
    if level > present and kind != FeatureUpgradeType.UPGRADE:
        return f"{name} is at level {present}: a downgrade to {level} would be an upgrade"
    behind = [
        _description(state, broker)
        for _, broker in sorted(state.image.brokers.items())
        if not supports(broker.features, name, level)
    ]
    if level != present and behind:
        return f"level {level} of {name} is not supported by {', '.join(behind)}"
    return ""


def _description(state: ControllerState, broker: BrokerRegistration) -> str:
    if broker.fenced:
        where = ", out of service"
    elif broker.broker_id in state.unconfirmed:
        where = ", not back since this controller took over"
    else:
        where = ""
    return f"broker {broker.broker_id} ({'; '.join(map(str, broker.features))}{where})"
