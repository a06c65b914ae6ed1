"""Dynamic configs of all brokers: which a LogCluster declares, and what follows from them. Pure.

Other limits of the cluster and other settings of brokers have such consequences, too: they may let
unclean elections happen again.

Those that a LogCluster declares are stored among the others, with their names beside them
(`DECLARED_CONFIGS`), so that the next controller knows them, too. They can be changed only in the
LogCluster: a config that it no longer names is unset. Other configs that people have set stay. A
value for one broker overrides them, as in Kafka, and a LogCluster never changes it.
"""

from collections.abc import Collection, Mapping

from fairlead_controller.decisions.draft import Draft
from fairlead_controller.decisions.events import Decision, DeclareBrokerConfigs, LimitCluster
from fairlead_controller.decisions.leadership import elect_leaderless
from fairlead_controller.decisions.minimum_in_sync import spread_minimum, static_min_insync_replicas
from fairlead_controller.decisions.state import (
    ControllerState,
    do_settings_allow_unclean_election,
)
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.cluster import CLUSTER_WIDE, BrokerConfigsChanged, ClusterImage
from fairlead_model.configs.broker_configs import DECLARED_CONFIGS
from fairlead_model.configs.config_values import ConfigError, validate_broker_config
from fairlead_model.session.refusals import RefusalCode, RefusedError


def decide_declared_configs(
    state: ControllerState, event: DeclareBrokerConfigs, room: TableRoom | None = None
) -> Decision:
    """Set what a LogCluster declares, and unset what it no longer does."""
    draft = Draft(state, room)
    present = state.image.broker_configs.get(CLUSTER_WIDE, {})
    configs = {
        name: value
        for name, value in present.items()
        if name != DECLARED_CONFIGS and name not in read_owners(present)
    }
    configs |= event.configs
    if event.configs:
        configs[DECLARED_CONFIGS] = ",".join(
            f"{event.cluster}/{name}" for name in sorted(event.configs)
        )
    try:
        _check(event.configs)
        if configs != present:
            draft.add(BrokerConfigsChanged(CLUSTER_WIDE, configs))
            follow_change(draft)
            draft.explain(f"LogCluster {event.cluster} declares other dynamic configs of brokers")
    except RefusedError as refusal:
        return Decision(reply=refusal)
    return draft.decision({})


def _check(configs: Mapping[str, str]) -> None:
    try:
        for name, value in configs.items():
            if name == DECLARED_CONFIGS:
                raise _not_settable()
            validate_broker_config(name, value, is_dynamic=True)
    except ConfigError as error:
        raise RefusedError(RefusalCode.INVALID_CONFIG, error.message) from error


def read_owners(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the LogCluster that declares each of these configs of all brokers, by their names."""
    entries = (entry.partition("/") for entry in configs.get(DECLARED_CONFIGS, "").split(","))
    return {name: cluster for cluster, _, name in entries if name in configs}


def read_declared(state: ControllerState) -> dict[str, str]:
    """Return the configs that a LogCluster declares."""
    configs = state.image.broker_configs.get(CLUSTER_WIDE, {})
    return {name: configs[name] for name in sorted(read_owners(configs))}


def keep_declared(
    altered: Mapping[str, str], present: Mapping[str, str], named: Collection[str]
) -> dict[str, str]:
    """Return altered configs of all brokers, with what a LogCluster declares as it was.

    Raise RefusedError if one of these is among the `named` and has another value.
    """
    refuse_declaration(named)
    owners = read_owners(present)
    for name in sorted(owners.keys() & named):
        if altered.get(name) != present[name]:
            raise RefusedError(
                RefusalCode.POLICY_VIOLATION,
                f"{name} is declared by LogCluster {owners[name]!r}; change its spec.config "
                "instead",
            )
    kept = owners.keys() | ({DECLARED_CONFIGS} & present.keys())
    return {**altered, **{name: present[name] for name in kept}}


def refuse_declaration(named: Collection[str]) -> None:
    """Raise RefusedError if a client other than the operator changes the declaration itself."""
    if DECLARED_CONFIGS in named:
        raise _not_settable()


def _not_settable() -> RefusedError:
    return RefusedError(
        RefusalCode.POLICY_VIOLATION, f"{DECLARED_CONFIGS} is set by the operator only"
    )


def decide_limits(state: ControllerState, event: LimitCluster) -> Decision:
    """Take other limits; unclean elections that these no longer withhold are due now."""
    draft = Draft(state)
    draft.add(event.limits)
    if state.limits.withholds_unclean and not event.limits.withholds_unclean:
        elect_where_allowed(draft)
    return draft.decision({})


def follow_change(draft: Draft) -> None:
    """Add what follows from other configs of all brokers: minima, and elections they allow."""
    spread_minimum(draft)
    elect_where_allowed(draft)


def follow_settings(draft: Draft, before: ClusterImage) -> None:
    """Add what follows from other settings of brokers than there were before."""
    image = draft.state.image
    if static_min_insync_replicas(image) != static_min_insync_replicas(before):
        spread_minimum(draft)
        draft.explain("the brokers' settings have another min.insync.replicas")
    if do_settings_allow_unclean_election(image) and not do_settings_allow_unclean_election(before):
        elect_where_allowed(draft)
        draft.explain("the settings of all brokers allow unclean elections")


def elect_where_allowed(draft: Draft) -> None:
    """Elect leaders for leaderless partitions whose topics allow unclean election."""
    state = draft.state
    waiting = [
        (topic, index)
        for topic in sorted(state.image.topics(), key=lambda topic: topic.topic_id)
        if state.allows_unclean_election(topic)
        for index, partition in enumerate(topic.partitions)
        if not partition.has_leader
    ]
    elect_leaderless(draft, waiting, "unclean election is allowed")
