"""The Secret with the authority of each cluster: made once, put back if it is deleted.

Clients trust this authority, and it has issued all certificates. With another one in its place
brokers, clients and the controller would not know each other until all have read everything anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from fairlead_kube.kinds import SECRET
from fairlead_operator.certificates.authority import make_authority
from fairlead_operator.certificates.rotation import (
    Authorities,
    AuthorityError,
    read_authorities,
)
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.live_objects import ClusterKey
from fairlead_operator.specs.certificates import build_authority_secret
from fairlead_operator.specs.names import (
    ROTATE_ANNOTATION,
    authority_secret_name,
    trust_secret_name,
)
from fairlead_operator.specs.session_secret import is_leftover
from fairlead_operator.specs.views import ClusterView

RESTORED: Final = "AuthorityRestored"
REPLACED: Final = "AuthorityReplaced"
LEFTOVER: Final = (
    "the Secret {} belongs to an earlier LogCluster of this name: Kubernetes deletes it; delete it "
    "if it stays"
)
UNREADABLE: Final = (
    "the Secret {} holds no authority: {}; correct it, or delete it: then the operator puts back "
    "the last one that it has seen, or makes a new authority, which clients have to trust"
)


@dataclass(frozen=True, slots=True)
class FoundAuthority:
    """The authority of a cluster; if there is none, the problem, or the next pass, says why."""

    authorities: Authorities | None
    problem: str = ""
    news: tuple[str, str] | None = None
    """Reason and message of an Event about an authority whose Secret was deleted."""


@dataclass(frozen=True, slots=True)
class _Held:
    """An authority as it was last seen or made."""

    uid: str
    """Of the LogCluster."""
    authorities: Authorities
    rotated: str
    """The last request for another authority that was met."""


class AuthorityKeeper:
    """The authorities of all clusters."""

    def __init__(self, writer: ApiWriter, *, wall_clock: Callable[[], datetime]) -> None:
        self._writer = writer
        self._wall_clock = wall_clock
        self._held: dict[ClusterKey, _Held] = {}

    def forget(self, key: ClusterKey) -> None:
        """Forget a LogCluster that was deleted: Kubernetes deletes its Secrets."""
        self._held.pop(key, None)

    async def ensure(
        self, cluster: ClusterView, secret: Mapping[str, Any] | None, *, is_trusted: bool
    ) -> FoundAuthority:
        """Return the authority of a cluster, made or put back if its `secret` is not there.

        `is_trusted` says that clients have been told of an authority already.
        """
        key, name = (cluster.namespace, cluster.name), authority_secret_name(cluster.name)
        if secret is None:
            held = self._held.get(key)
            is_known = held is not None and held.uid == cluster.uid
            if held is None or not is_known:
                held = self._make(cluster)
            manifest = build_authority_secret(cluster, held.authorities, rotated=held.rotated)
            secret = await self._writer.find(SECRET, manifest)
            if secret is None:
                if not await self._writer.create(SECRET, manifest):
                    return FoundAuthority(None)
                self._held[key] = held
                news = _news(cluster.name, is_known=is_known, is_trusted=is_trusted)
                return FoundAuthority(held.authorities, news=news)
        if is_leftover(secret, cluster.uid):
            return FoundAuthority(None, LEFTOVER.format(name))
        try:
            authorities = read_authorities(secret.get("data") or {})
        except AuthorityError as error:
            return FoundAuthority(None, UNREADABLE.format(name, error))
        annotations = secret["metadata"].get("annotations") or {}
        self.note(cluster, authorities, rotated=annotations.get(ROTATE_ANNOTATION, ""))
        return FoundAuthority(authorities)

    def note(self, cluster: ClusterView, authorities: Authorities, *, rotated: str) -> None:
        """Note what the Secret of a cluster holds now."""
        held = _Held(cluster.uid, authorities, rotated)
        self._held[cluster.namespace, cluster.name] = held

    def _make(self, cluster: ClusterView) -> _Held:
        now = self._wall_clock()
        made = make_authority(f"{cluster.name} {now:%Y-%m-%dT%H:%M:%SZ}", now)
        return _Held(cluster.uid, Authorities(current=made), cluster.rotate_authority)


def _news(cluster: str, *, is_known: bool, is_trusted: bool) -> tuple[str, str] | None:
    name, trust = authority_secret_name(cluster), trust_secret_name(cluster)
    if is_known:
        return RESTORED, f"Secret {name} was deleted: it was made again, with what it held before"
    if not is_trusted:
        return None
    return REPLACED, (
        f"Secret {name} was deleted while no operator saw it: a new authority issues all "
        f"certificates anew, and clients have to read {trust} again"
    )
