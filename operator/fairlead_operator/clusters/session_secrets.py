"""The session Secret of each LogCluster: made once, never overwritten, put back if it is deleted.

Brokers and controllers read it when they start, and go by what they read. So what is put back has
to be what was there: with other content a controller would refuse all running brokers after the
next change of the Lease, and brokers that restart could not copy from the others.

The Secrets are not watched: this process has no other use for them. They are read now and then.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_kube.kinds import POD, SECRET
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.events import EventWriter
from fairlead_operator.live_objects import ClusterKey, LiveObjects
from fairlead_operator.specs.session_secret import (
    SECRET_BYTES,
    build_session_secret,
    is_leftover,
)
from fairlead_operator.specs.views import ClusterView

LOOK_S: Final = 10.0
RESTORED: Final = "SessionSecretRestored"
REPLACED: Final = "SessionSecretReplaced"


@dataclass(frozen=True, slots=True)
class _Held:
    """What was in a Secret when it was last read or made."""

    uid: str
    """Of the LogCluster."""
    data: Mapping[str, Any]
    look_at: float


class SessionSecrets:
    """The session Secrets of all LogClusters."""

    def __init__(
        self,
        live: LiveObjects,
        writer: ApiWriter,
        events: EventWriter,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._live = live
        self._writer = writer
        self._events = events
        self._monotonic = monotonic
        self._held: dict[ClusterKey, _Held] = {}

    def forget(self, key: ClusterKey) -> None:
        """Forget a LogCluster that was deleted: Kubernetes deletes its Secret."""
        self._held.pop(key, None)

    async def ensure(self, cluster: ClusterView) -> bool:
        """Create the Secret of a LogCluster if it does not exist; tell whether brokers may start.

        They may not while the Secret of an earlier LogCluster of this name exists, which Kubernetes
        is about to delete: a new one is created after that.
        """
        key, now = (cluster.namespace, cluster.name), self._monotonic()
        held = self._held.get(key)
        if held is not None and held.uid != cluster.uid:
            held = None
        if held is not None and now < held.look_at:
            return True
        wanted = build_session_secret(cluster, secrets.token_bytes(SECRET_BYTES))
        live = await self._writer.find(SECRET, wanted)
        if live is not None and is_leftover(live, cluster.uid):
            return held is not None
        if live is None:
            if held is not None:
                wanted["data"] = dict(held.data)
            if not await self._writer.create(SECRET, wanted):
                return True  # somebody else was quicker: it is read next time
            await self._tell(key, wanted["metadata"]["name"], is_same=held is not None)
        data = (live or wanted).get("data") or {}
        self._held[key] = _Held(cluster.uid, data, now + LOOK_S)
        return True

    async def _tell(self, key: ClusterKey, name: str, *, is_same: bool) -> None:
        """Report a Secret that was made although brokers had one before."""
        if is_same:
            reason = RESTORED
            message = f"Secret {name} was deleted: it was made again, with what it held before"
        elif self._live.of_cluster(POD, key):
            reason = REPLACED
            message = (
                f"Secret {name} was deleted while no operator saw it, and a new one was made: put "
                "the old content back if you have it; else delete the pods of the operator and of "
                "all brokers, which still go by the old one"
            )
        else:
            return
        await self._events.emit(self._live.cluster(key), reason, message, "Warning")
