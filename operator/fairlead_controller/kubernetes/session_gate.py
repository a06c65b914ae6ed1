"""Where brokers of all LogClusters connect: `/NAMESPACE/CLUSTER/session`."""

from collections.abc import Callable

from aiohttp import web

from fairlead_controller.sessions.session_gate import SessionGate
from fairlead_model.session.session_protocol import SESSION_PATH
from fairlead_tls.peer_names import PeerName

ClusterKey = tuple[str, str]
"""Namespace and name of a LogCluster."""


def build_gate(
    find_secret: Callable[[ClusterKey], bytes | None],
    problem_of: Callable[[ClusterKey, PeerName | None], str | None] = lambda key, peer: None,
) -> SessionGate[ClusterKey]:
    """Return the gate for the brokers of all LogClusters.

    `problem_of` tells why a peer with this certificate, or none, may not speak for a cluster.
    """
    path = f"/{{namespace}}/{{cluster}}{SESSION_PATH}"
    return SessionGate(find_secret, path=path, key_of=_key_of, problem_of=problem_of)


def _key_of(request: web.Request) -> ClusterKey:
    return request.match_info["namespace"], request.match_info["cluster"]
