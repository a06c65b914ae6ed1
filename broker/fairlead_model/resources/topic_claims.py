"""Which of several resources that declare the same speaks for it: the oldest.

So it is for Topics with one topicName, and for Users with one principal. The operator's reconciler
and the controller both ask here, so that no resource is told that another one is older while the
other is refused too. Both know a resource by its reference: its name in the namespace of the
cluster, NAMESPACE/NAME in any other one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Claimant(NamedTuple):
    """A resource that declares something; ordered by age, then by reference."""

    created: str
    """`metadata.creationTimestamp`, which sorts as text; empty for one that is in no cluster."""
    reference: str


def topic_reference(namespace: str, name: str, *, cluster_namespace: str) -> str:
    """Return how a cluster knows a resource."""
    return name if namespace == cluster_namespace else f"{namespace}/{name}"


def read_reference(reference: str, *, cluster_namespace: str) -> tuple[str, str]:
    """Return the namespace and the name of the resource that a cluster knows so."""
    namespace, slash, name = reference.rpartition("/")
    return (namespace if slash else cluster_namespace), name


def read_claimant(metadata: Mapping[str, Any], reference: str) -> Claimant:
    """Return what a manifest's `metadata` says of the resource's age."""
    return Claimant(str(metadata.get("creationTimestamp") or ""), reference)


def oldest(claimants: Iterable[Claimant]) -> Claimant:
    """Return who of at least one speaks for it; in one second the first by reference."""
    return min(claimants)
