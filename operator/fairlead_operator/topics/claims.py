"""Which resources declare which topic or principal; `oldest` chooses one of several.

It is updated change by change. Resources that only show a topic made over Kafka claim nothing, nor
do resources that may not be in the cluster.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from fairlead_model.resources.topic_claims import Claimant, oldest
from fairlead_operator.topics.topic_resource import ClusterKey, ResourceKey

Claim = tuple[str, str, str]
"""Namespace, cluster, and the name of the declared topic or principal."""


class Claiming(Protocol):
    """A resource that declares something of a cluster."""

    @property
    def key(self) -> ResourceKey:
        """The resource's namespace and name."""
        ...

    @property
    def cluster_key(self) -> ClusterKey:
        """The cluster that the resource names."""
        ...

    @property
    def claim(self) -> Claim:
        """What the resource declares."""
        ...

    @property
    def claimant(self) -> Claimant:
        """Its precedence among resources that declare the same."""
        ...

    @property
    def is_claiming(self) -> bool:
        """Whether the resource declares anything."""
        ...


R = TypeVar("R", bound=Claiming)


class Claims(Generic[R]):
    """All claims of one kind of resources; `may_be_there` tells whether a resource counts."""

    def __init__(self, may_be_there: Callable[[ResourceKey], bool] = lambda _: True) -> None:
        self._may_be_there = may_be_there
        self._by_claim: dict[Claim, dict[Claimant, ResourceKey]] = {}
        self._by_cluster: dict[ClusterKey, dict[ResourceKey, R]] = {}

    def update(self, old: R | None, new: R | None) -> frozenset[ResourceKey]:
        """Apply a change; return the other resources that it may affect."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._by_cluster.setdefault(new.cluster_key, {})[new.key] = new
            if new.is_claiming:
                contenders = self._by_claim.setdefault(new.claim, {})
                contenders[new.claimant] = new.key
        concerned: set[ResourceKey] = set()
        for each in (old, new):
            if each is not None:
                concerned |= {*self._by_claim.get(each.claim, {}).values()} - {each.key}
        return frozenset(concerned)

    def owner(self, claim: Claim) -> ResourceKey | None:
        """Return the resource that owns a claim."""
        contenders = {
            claimant: key
            for claimant, key in self._by_claim.get(claim, {}).items()
            if self._may_be_there(key)
        }
        return contenders[oldest(contenders)] if contenders else None

    def of_cluster(self, cluster: ClusterKey) -> list[R]:
        """Return all resources that name a cluster."""
        return list(self._by_cluster.get(cluster, {}).values())

    def _remove(self, resource: R) -> None:
        of_cluster = self._by_cluster.get(resource.cluster_key, {})
        of_cluster.pop(resource.key, None)
        if not of_cluster:
            self._by_cluster.pop(resource.cluster_key, None)
        contenders = self._by_claim.get(resource.claim, {})
        contenders.pop(resource.claimant, None)
        if not contenders:
            self._by_claim.pop(resource.claim, None)
