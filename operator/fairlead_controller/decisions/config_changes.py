"""Altering configs of topics, brokers and groups: full and incremental, each on its own."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from fairlead_controller.decisions.cluster_wide_configs import (
    follow_change,
    keep_declared,
    refuse_declaration,
)
from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import AlterConfigs, Decision
from fairlead_controller.decisions.ordered_fencing import check_fence, follow_fence
from fairlead_controller.decisions.reassignment.evacuation import check_drain, follow_drain
from fairlead_controller.decisions.state import ControllerState, is_drained, is_ordered_out
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_controller.decisions.topic_lookup import find_topic, refuse_declared
from fairlead_controller.decisions.topics.topic_configs import set_topic_configs
from fairlead_model.cluster import (
    CLUSTER_WIDE,
    BrokerConfigsChanged,
    GroupConfigsChanged,
)
from fairlead_model.configs.broker_configs import CLUSTER_WIDE_CONFIGS, PER_BROKER_CONFIGS
from fairlead_model.configs.config_values import (
    BROKER_DRAIN,
    BROKER_FENCE,
    BrokerValues,
    ConfigError,
    ConfigKey,
    ConfigType,
    StaticConfigError,
    broker_config_key,
    topic_config_key,
    validate_broker_config,
)
from fairlead_model.configs.group_configs import group_config_key, validate_group_configs
from fairlead_model.ids import topic_name_problem
from fairlead_model.session.calls import (
    AlterableResource,
    AlteredResource,
    AlterOperation,
    ConfigAlteration,
    ResourceType,
)
from fairlead_model.session.refusals import RefusalCode, RefusedError

_ORDERS: Final = frozenset({BROKER_DRAIN, BROKER_FENCE})


def decide_config_changes(
    state: ControllerState, event: AlterConfigs, room: TableRoom | None = None
) -> Decision:
    """Alter the configs of resources; with `validate_only` tell whether they would be accepted."""
    call = event.call
    draft = Draft(state, room)
    limits = BrokerValues(static=call.get("group_limits", {}))
    asked = Counter((item["resource_type"], item["name"]) for item in call["resources"])
    results: list[AlteredResource] = []
    for resource in call["resources"]:
        code, message = 0, None
        try:
            if asked[resource["resource_type"], resource["name"]] > 1:
                raise RefusedError(
                    RefusalCode.INVALID_REQUEST, f"resource {resource['name']!r} is named twice"
                )
            _alter(draft, resource, limits, is_incremental=call["incremental"])
        except RefusedError as refusal:
            code, message = int(refusal.code), refusal.message
        results.append(
            AlteredResource(
                resource_type=resource["resource_type"],
                name=resource["name"],
                error_code=code,
                error_message=message,
            )
        )
    reply = {"resources": results}
    return Decision(reply=reply) if call["validate_only"] else draft.decision(reply)


def _alter(
    draft: Draft, resource: AlterableResource, limits: BrokerValues, *, is_incremental: bool
) -> None:
    try:
        if resource["resource_type"] == ResourceType.TOPIC:
            _alter_topic(draft, resource, is_incremental=is_incremental)
        elif resource["resource_type"] == ResourceType.BROKER:
            _alter_broker(draft, resource, is_incremental=is_incremental)
        elif resource["resource_type"] == ResourceType.GROUP:
            _alter_group(draft, resource, limits, is_incremental=is_incremental)
        else:
            raise RefusedError(
                RefusalCode.INVALID_REQUEST,
                f"configs of resource type {resource['resource_type']} cannot be altered",
            )
    except StaticConfigError as error:
        raise RefusedError(RefusalCode.INVALID_REQUEST, error.message) from error
    except ConfigError as error:
        raise RefusedError(RefusalCode.INVALID_CONFIG, error.message) from error


def _alter_topic(draft: Draft, resource: AlterableResource, *, is_incremental: bool) -> None:
    if not resource["name"]:
        raise RefusedError(
            RefusalCode.INVALID_REQUEST, "name a topic: no configs are kept for all topics at once"
        )
    if (problem := topic_name_problem(resource["name"])) is not None:
        raise RefusedError(RefusalCode.INVALID_TOPIC_EXCEPTION, problem)
    topic = find_topic(draft.state, resource["name"])
    refuse_declared(topic)
    configs = _altered(
        topic.configs if is_incremental else {}, resource["alterations"], key_of=topic_config_key
    )
    set_topic_configs(draft, topic, configs)


def _alter_broker(draft: Draft, resource: AlterableResource, *, is_incremental: bool) -> None:
    name = resource["name"]
    _check_broker_name(draft.state, name)
    present = draft.state.image.broker_configs.get(name, {})
    # A request that replaces all configs leaves the orders to drain and fence: they are no
    # settings.
    kept = {key: value for key, value in present.items() if is_incremental or key in _ORDERS}
    configs = _altered(kept, resource["alterations"], key_of=broker_config_key)
    named = {alteration["name"] for alteration in resource["alterations"]}
    if name == CLUSTER_WIDE:
        configs = keep_declared(configs, present, named)
    else:
        refuse_declaration(named)
    for config, value in configs.items():
        if present.get(config) != value:
            validate_broker_config(config, value, is_dynamic=True)
            _check_scope(name, config)
    if configs == present:
        return
    change = BrokerConfigsChanged(name, configs)
    _check_orders(draft.state, change)
    was_ordered = name != CLUSTER_WIDE and int(name) in draft.state.ordered_out
    was_drained = name != CLUSTER_WIDE and int(name) in draft.state.cordoned
    draft.add(change)
    if name != CLUSTER_WIDE:
        follow_drain(draft, int(name), was_drained=was_drained)
        follow_fence(draft, int(name), was_ordered=was_ordered)
    if name == CLUSTER_WIDE:
        follow_change(draft)
    draft.explain(f"{f'broker {name} has' if name else 'brokers have'} other dynamic configs")


def _check_orders(state: ControllerState, change: BrokerConfigsChanged) -> None:
    """Raise RefusedError if a broker cannot be drained or fenced as its configs would order."""
    for config, is_asked, ordered, check in (
        (BROKER_DRAIN, is_drained(change), state.cordoned, check_drain),
        (BROKER_FENCE, is_ordered_out(change), state.ordered_out, check_fence),
    ):
        if not is_asked:
            continue
        if change.broker == CLUSTER_WIDE:
            raise RefusedError(RefusalCode.INVALID_CONFIG, f"{config} is for one broker")
        if int(change.broker) not in ordered:
            check(state, int(change.broker))


def _check_scope(name: str, config: str) -> None:
    if name != CLUSTER_WIDE and config in CLUSTER_WIDE_CONFIGS:
        raise RefusedError(
            RefusalCode.INVALID_REQUEST,
            f"{config} holds for all brokers at once: alter it for the cluster (an empty broker "
            "name, --entity-default)",
        )

    if name == CLUSTER_WIDE and config in PER_BROKER_CONFIGS:
        raise RefusedError(
            RefusalCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"Set({config})",
        )


def _check_broker_name(state: ControllerState, name: str) -> None:
    if name == CLUSTER_WIDE:
        return
    # Compared as texts: a config that was set for "02" would not be found under broker 2.
    if all(name != str(broker_id) for broker_id in state.image.brokers):
        raise RefusedError(RefusalCode.INVALID_REQUEST, f"there is no broker {name!r}")


def _alter_group(
    draft: Draft, resource: AlterableResource, limits: BrokerValues, *, is_incremental: bool
) -> None:
    """Alter configs of a group, which need not exist: as in Kafka they may come before it."""
    group_id = resource["name"]
    if not group_id:
        raise RefusedError(
            RefusalCode.INVALID_REQUEST, "name a group: no configs are kept for all groups at once"
        )
    present = draft.state.image.group_configs.get(group_id, {})
    configs = _altered(
        present if is_incremental else {}, resource["alterations"], key_of=group_config_key
    )
    validate_group_configs(configs, limits)
    if configs == present:
        return
    draft.add(GroupConfigsChanged(group_id, configs))
    draft.explain(f"group {group_id} has other configs")


def _altered(
    present: Mapping[str, str],
    alterations: list[ConfigAlteration],
    *,
    key_of: Callable[[str], ConfigKey],
) -> dict[str, str]:
    """Return the overrides after alterations; raise RefusedError if a config is named twice.

    An unknown config may still be removed, as in Kafka.
    """
    configs = dict(present)
    named: set[str] = set()
    for alteration in alterations:
        name = alteration["name"]
        if name in named:
            raise RefusedError(RefusalCode.INVALID_REQUEST, f"{name} is named twice")
        named.add(name)
        if alteration["operation"] == AlterOperation.DELETE:
            configs.pop(name, None)
        else:
            _apply_alteration(configs, key_of(name), alteration)
    return configs


def _apply_alteration(
    configs: dict[str, str], key: ConfigKey, alteration: ConfigAlteration
) -> None:
    """Set a value, or add to a list and take from it."""
    operation, value = alteration["operation"], alteration["value"]
    if value is None:
        raise RefusedError(
            RefusalCode.INVALID_REQUEST, f"Null value not supported for : {key.name}"
        )
    if operation == AlterOperation.SET:
        configs[key.name] = value
        return
    if operation not in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
        raise RefusedError(
            RefusalCode.INVALID_REQUEST, f"{key.name}: unknown operation {operation}"
        )
    if key.type is not ConfigType.LIST:
        raise RefusedError(
            RefusalCode.INVALID_CONFIG, f"{key.name} is not a list: set it as a whole"
        )
    members = _members(configs.get(key.name, key.default or ""))
    if operation == AlterOperation.APPEND:
        present = set(members)
        members += [each for each in dict.fromkeys(_members(value)) if each not in present]
    else:
        removed = set(_members(value))
        members = [member for member in members if member not in removed]
    configs[key.name] = ",".join(members)


def _members(text: str) -> list[str]:
    return [member.strip() for member in text.split(",") if member.strip()]
