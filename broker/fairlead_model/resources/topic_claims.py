"""Which of several resources that declare the same object takes effect: the oldest.

This applies to Topics with the same topicName and to Users with the same principal. Both the
operator's reconciler and the controller use this module. Otherwise each might refuse a resource
because the other one is older, and then both resources would be refused. Both identify a resource
by its reference: its name if it is in the cluster's namespace, else NAMESPACE/NAME.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Claimant(NamedTuple):
    """A resource that declares something; ordered by age, then by reference."""

    created: str
    """`metadata.creationTimestamp`, which sorts as text; empty for a resource outside a cluster."""
    reference: str


def topic_reference(namespace: str, name: str, *, cluster_namespace: str) -> str:
    """Return the reference by which a cluster identifies a resource."""
    return name if namespace == cluster_namespace else f"{namespace}/{name}"


def read_reference(reference: str, *, cluster_namespace: str) -> tuple[str, str]:
    """Return the namespace and the name of the resource with this reference."""
    namespace, slash, name = reference.rpartition("/")
    return (namespace if slash else cluster_namespace), name


def read_claimant(metadata: Mapping[str, Any], reference: str) -> Claimant:
    """Return the claimant for a manifest's `metadata`, with the age of the resource."""
    return Claimant(str(metadata.get("creationTimestamp") or ""), reference)


def oldest(claimants: Iterable[Claimant]) -> Claimant:
    """Return the claimant that takes effect; of equal age, the first by reference."""
    return min(claimants)
