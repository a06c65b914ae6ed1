"""The Secret that brokers and controllers share. Pure: the bytes are a parameter."""

import base64
from collections.abc import Mapping
from typing import Any, Final

from fairlead_kube.kinds import LOG_CLUSTER, SECRET
from fairlead_operator.specs.names import SECRET_KEY, cluster_labels, secret_name
from fairlead_operator.specs.views import ClusterView, Manifest, build_child

SECRET_BYTES: Final = 32


def build_session_secret(cluster: ClusterView, random_bytes: bytes) -> Manifest:
    """Return the Secret; it is created once and never overwritten."""
    manifest = build_child(SECRET, cluster, secret_name(cluster.name), cluster_labels(cluster.name))
    text = base64.b64encode(random_bytes)
    return manifest | {"type": "Opaque", "data": {SECRET_KEY: base64.b64encode(text).decode()}}


def is_leftover(live: Mapping[str, Any], uid: str) -> bool:
    """Tell whether a Secret belongs to an earlier LogCluster of this name, and will be deleted.

    `uid` is that of the present LogCluster.
    """
    metadata = live["metadata"]
    owners = [
        owner["uid"]
        for owner in metadata.get("ownerReferences") or ()
        if owner.get("kind") == LOG_CLUSTER.kind
    ]
    return "deletionTimestamp" in metadata or (bool(owners) and uid not in owners)
