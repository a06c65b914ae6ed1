"""Whether a tree of znodes may be taken over: ours, whole, and not older than an earlier one. Pure.

Checked before the first write, and before each election. A tree that holds metadata of Kafka or of
another cluster is left alone; so is a tree that went back in time or lost its content.

In a tree that `/fairlead` shows to be ours, no znode of Kafka's has to be readable: an ACL that
somebody set there keeps nobody from a takeover. In any other tree it does, because what is hidden
may be of a Kafka.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoreError,
    StoreRolledBackError,
    StoreTooNewError,
    newer_format,
)
from fairlead_zookeeper import znodes


class ForeignTreeError(StoreError):
    """The chroot belongs to another cluster or program; the text names it and says what to do."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What was read; None for a znode that does not exist."""

    root: bytes | None = None
    """`/fairlead`."""
    cluster: bytes | None = None
    """`/cluster/id`."""
    controller: bytes | None = None
    brokers: Mapping[str, bytes] = field(default_factory=dict)
    """`/brokers/ids`."""
    has_topics: bool = False
    has_tables: bool = False
    epoch: int = 0
    hidden: Sequence[str] = ()
    """Znodes of Kafka's whose ACL keeps this user from reading them."""


def cluster_of(tree: Tree) -> str:
    """Return the id of the cluster whose tree it is; empty before the cluster is founded.

    StoreCorruptError if `/fairlead` cannot be read, StoreTooNewError if it has a newer format.
    """
    if not tree.root:
        return ""
    record = znodes.decode(tree.root)
    cluster_id = (record or {}).get("cluster_id")
    if record is None or not isinstance(cluster_id, str) or not cluster_id:
        raise StoreCorruptError(
            f"{znodes.FAIRLEAD} cannot be read: {tree.root[:200]!r}; put back its JSON object with "
            f'"format" and "cluster_id" ({znodes.CLUSTER_ID} has the id, too)'
        )
    if problem := newer_format(
        znodes.FAIRLEAD, znodes.FORMAT, record.get("format"), record.get("release")
    ):
        raise StoreTooNewError(problem)
    if record.get("format") != znodes.FORMAT:
        raise StoreCorruptError(
            f"{znodes.FAIRLEAD} has format {record.get('format')!r}, this release reads "
            f"{znodes.FORMAT}"
        )
    return cluster_id


def check_tree(tree: Tree, *, known_cluster: str, known_epoch: int) -> str:
    """Return the id of the cluster, empty if it has to be founded.

    `known_cluster` and `known_epoch` are what the candidate remembers. ForeignTreeError,
    StoreCorruptError or StoreRolledBackError if nobody may write here.
    """
    cluster_id = cluster_of(tree)
    _check_kafka(tree, is_ours=bool(cluster_id))
    if known_cluster and cluster_id and known_cluster != cluster_id:
        raise ForeignTreeError(
            f"this chroot is of the cluster {cluster_id}, this controller belongs to "
            f"{known_cluster}: check zookeeper.connect, its chroot above all"
        )
    if known_cluster and not cluster_id:
        raise StoreRolledBackError(
            f"ZooKeeper knows nothing of the cluster {known_cluster} any more (or its chroot is "
            "another one)"
        )
    if cluster_id and not tree.has_tables:
        raise StoreRolledBackError(f"{znodes.TABLES} holds no table of the cluster {cluster_id}")
    shown = znodes.read_cluster_id(tree.cluster) if tree.cluster else None
    if cluster_id and shown is not None and shown != cluster_id:
        raise ForeignTreeError(
            f"{znodes.FAIRLEAD} is of the cluster {cluster_id}, {znodes.CLUSTER_ID} of {shown}: "
            "two clusters write to one chroot"
        )
    if tree.epoch < known_epoch:
        raise StoreRolledBackError(
            f"{znodes.CONTROLLER_EPOCH} is {tree.epoch}, this controller has seen {known_epoch}"
        )
    return cluster_id


def _check_kafka(tree: Tree, *, is_ours: bool) -> None:
    """Raise ForeignTreeError if Kafka uses the tree, or has left its metadata in it."""
    advice = "give Fairlead a chroot of its own (zookeeper.connect=HOST:PORT,…/CHROOT)"
    if tree.controller is not None and znodes.controller_identity(tree.controller) is None:
        raise ForeignTreeError(
            f"{znodes.CONTROLLER} is of a Kafka controller: {tree.controller[:200]!r}; {advice}"
        )
    for broker_id, data in sorted(tree.brokers.items()):
        if znodes.broker_directory(data) is None:
            raise ForeignTreeError(
                f"{znodes.BROKER_IDS}/{broker_id} is of a Kafka broker; {advice}"
            )
    if not is_ours and tree.hidden:
        raise ForeignTreeError(
            f"{tree.hidden[0]} cannot be read, and nothing shows that no Kafka uses this chroot: "
            f"{advice}, or let this user read it"
        )
    if not is_ours and (tree.has_topics or tree.cluster is not None):
        raise ForeignTreeError(
            f"{znodes.BROKER_TOPICS} and {znodes.CLUSTER_ID} hold the metadata of a Kafka cluster; "
            f"{advice}"
        )
