"""What the controller reads of a LogCluster. Pure; an invalid field counts as its default.

If a field is invalid, the operator's other process refuses the resource with a reason; elections go
on meanwhile.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead_controller.decisions.cluster_limits import ClusterLimits
from fairlead_model.configs.config_key import ConfigError
from fairlead_model.configs.config_values import validate_broker_config
from fairlead_model.configs.controller_configs import (
    CONTROLLER_CONFIGS,
    DEFAULT_TIMING,
    ControllerConfigs,
    SessionTiming,
    read_controller_configs,
)
from fairlead_model.resources.hibernation import DOWN_REASONS, HIBERNATED, SLEEP_REASONS

RECLAIM_DELETE: Final = "Delete"
MANAGED_ANNOTATION: Final = "fairlead.io/managed"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One LogCluster, as far as elections and tables are concerned."""

    uid: str
    is_being_deleted: bool = False
    deletes_tables: bool = False
    """Whether the metadata is deleted with the resource."""
    default_partitions: int = 1
    default_replication_factor: int = 3
    balances_leaders: bool = True
    balance_interval_s: int = 300
    imbalance_percentage_max: int = 10
    limits: ClusterLimits = field(default_factory=ClusterLimits)
    timing: SessionTiming = DEFAULT_TIMING
    config: Mapping[str, str] = field(default_factory=dict)
    is_down: bool = False
    """Whether its brokers are stopped because the cluster hibernates."""


def read_cluster_spec(manifest: Mapping[str, Any]) -> ClusterSpec:
    """Read a LogCluster."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    config = {str(name): _text(value) for name, value in (spec.get("config") or {}).items()}
    defaults = spec.get("defaults") or {}
    controller = _controller_configs(config)
    sleep_reason = _sleep_reason(manifest)
    return ClusterSpec(
        uid=metadata["uid"],
        is_being_deleted=bool(metadata.get("deletionTimestamp")),
        deletes_tables=spec.get("reclaimPolicy") == RECLAIM_DELETE and not _is_left_alone(manifest),
        default_partitions=_count(defaults.get("partitions"), 1),
        default_replication_factor=_count(defaults.get("replicationFactor"), 3),
        balances_leaders=controller.balances_leaders,
        balance_interval_s=controller.balance_interval_s,
        imbalance_percentage_max=controller.imbalance_percentage_max,
        limits=ClusterLimits(
            controller.topics_max,
            controller.partitions_max,
            withholds_unclean=spec.get("hibernated") is True or sleep_reason in SLEEP_REASONS,
        ),
        timing=controller.timing,
        config=config,
        is_down=sleep_reason in DOWN_REASONS,
    )


def _is_left_alone(manifest: Mapping[str, Any]) -> bool:
    """Tell whether the operator no longer manages the resource: its brokers need their metadata."""
    annotations = manifest["metadata"].get("annotations") or {}
    return bool(annotations.get(MANAGED_ANNOTATION) == "false")


def _sleep_reason(manifest: Mapping[str, Any]) -> str:
    """Return the reason of the Hibernated condition that the other process wrote; empty if none."""
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    reasons = (each.get("reason") for each in conditions if each.get("type") == HIBERNATED)
    return str(next(reasons, ""))


def _controller_configs(config: Mapping[str, str]) -> ControllerConfigs:
    kept = {}
    for name in CONTROLLER_CONFIGS:
        if name in config:
            with suppress(ConfigError):
                validate_broker_config(name, config[name])
                kept[name] = config[name]
    return read_controller_configs(kept)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _count(value: object, default: int) -> int:
    try:
        number = int(str(value))
    except ValueError:
        return default
    return number if number >= 1 else default
