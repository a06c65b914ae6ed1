"""The Secret by which brokers and controllers know each other. Pure: the bytes are given."""

import base64
from typing import Final

from fairlead_controller.kube.kinds import SECRET
from fairlead_operator.specs.names import SECRET_KEY, cluster_labels, secret_name
from fairlead_operator.specs.views import ClusterView, Manifest, build_child

SECRET_BYTES: Final = 32


def build_session_secret(cluster: ClusterView, random_bytes: bytes) -> Manifest:
    """Give the Secret; it is created once and never written over."""
    manifest = build_child(SECRET, cluster, secret_name(cluster.name), cluster_labels(cluster.name))
    text = base64.b64encode(random_bytes)
    return manifest | {"type": "Opaque", "data": {SECRET_KEY: base64.b64encode(text).decode()}}
