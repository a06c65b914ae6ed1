"""What the controller reads of a LogCluster. Pure; what is odd there counts as its default.

The operator's other process refuses such a resource with a reason; elections go on meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

RECLAIM_DELETE: Final = "Delete"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One LogCluster, as far as elections and tables are concerned."""

    uid: str
    is_being_deleted: bool = False
    deletes_tables: bool = False
    """Whether the metadata goes with the resource."""
    default_partitions: int = 1
    default_replication_factor: int = 3
    balances_leaders: bool = True
    balance_interval_s: int = 300
    imbalance_percentage_max: int = 10
    config: Mapping[str, str] = field(default_factory=dict)


def read_cluster_spec(manifest: Mapping[str, Any]) -> ClusterSpec:
    """Read a LogCluster."""
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    config = {str(name): _text(value) for name, value in (spec.get("config") or {}).items()}
    defaults = spec.get("defaults") or {}
    return ClusterSpec(
        uid=metadata["uid"],
        is_being_deleted=bool(metadata.get("deletionTimestamp")),
        deletes_tables=spec.get("reclaimPolicy") == RECLAIM_DELETE,
        default_partitions=_count(defaults.get("partitions"), 1),
        default_replication_factor=_count(defaults.get("replicationFactor"), 3),
        balances_leaders=config.get("auto.leader.rebalance.enable", "true").lower() == "true",
        balance_interval_s=_count(config.get("leader.imbalance.check.interval.seconds"), 300),
        imbalance_percentage_max=_count(
            config.get("leader.imbalance.per.broker.percentage"), 10, minimum=0
        ),
        config=config,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _count(value: object, default: int, *, minimum: int = 1) -> int:
    try:
        number = int(str(value))
    except ValueError:
        return default
    return number if number >= minimum else default
