"""Asks brokers which certificates they show and trust now; a rotation waits for the answers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead_operator.certificates.authority import fingerprint, fingerprints, is_issued_by
from fairlead_operator.live_objects import Manifest
from fairlead_operator.pod_http import PodAnswerError, ask_pod
from fairlead_operator.specs.certificates import TLS_CERTIFICATE, decode_secret
from fairlead_operator.specs.listener_security import keystore_key
from fairlead_operator.specs.names import HTTP_PORT, OPERATOR_LISTENER
from fairlead_operator.specs.peer_security import PEER_LISTENERS, is_peer_key
from fairlead_operator.specs.views import ClusterView

TIMEOUT_S: Final = 3.0
"""A rotation goes on when all brokers answer the same question: where each of many is a second late
now and then, it would never end. A broker that is silent for longer is fenced."""
CERTIFICATES_PATH: Final = "/certificates"
_LEAF_KEYS: Final = (keystore_key(OPERATOR_LISTENER.lower()), TLS_CERTIFICATE, "user.crt")
"""Keys of Secrets with certificates of the cluster's authority, besides those between peers."""


@dataclass(frozen=True, slots=True)
class TrustAnswer:
    """A broker's answer about the listeners that it was asked for, by SHA-256."""

    certificates: frozenset[str]
    """The certificates that these listeners show."""
    trusted: frozenset[str]
    """The certificates that all of them trust."""


class BrokerTrust:
    """Asks brokers over HTTP."""

    async def ask(self, pods: Sequence[Manifest], listeners: Sequence[str]) -> list[TrustAnswer]:
        """Return the answers of those brokers that answer for each of these listeners."""
        addresses = [str((pod.get("status") or {}).get("podIP") or "") for pod in pods]
        asked = (_ask(address, listeners) for address in addresses if address)
        return [answer for answer in await asyncio.gather(*asked) if answer is not None]


def own_listeners(cluster: ClusterView) -> tuple[str, ...]:
    """Return the listeners that always show certificates of the cluster's authority."""
    peers = PEER_LISTENERS if cluster.spec.inter_broker.tls else ()
    return (OPERATOR_LISTENER, *peers) if cluster.spec.is_secured else peers


def is_trusted(told: Sequence[TrustAnswer], wanted: int, trusted: bytes) -> bool:
    """Tell whether `wanted` brokers have answered and all of them trust these certificates."""
    needed = set(fingerprints(trusted))
    return len(told) >= wanted and all(each.trusted >= needed for each in told)


def is_issued_everywhere(
    told: Sequence[TrustAnswer],
    wanted: int,
    secrets: Sequence[Mapping[str, Any]],
    authority: bytes,
) -> bool:
    """Tell whether brokers show, and all Secrets hold, only certificates of this authority."""
    leaves = [
        leaf
        for secret in secrets
        for key in secret.get("data") or ()
        if (key in _LEAF_KEYS or is_peer_key(key)) and (leaf := decode_secret(secret, key))
    ]
    # `is_issued_by` comes first: it refuses unreadable data that somebody put into a Secret.
    if len(told) < wanted or not all(is_issued_by(leaf, authority) for leaf in leaves):
        return False
    shown = {fingerprint(leaf) for leaf in leaves}
    return all(each.certificates <= shown for each in told)


async def _ask(address: str, listeners: Sequence[str]) -> TrustAnswer | None:
    try:
        answer = await ask_pod(address, HTTP_PORT, CERTIFICATES_PATH, timeout_s=TIMEOUT_S)
        told = answer.json() if answer.status == 200 else None
    except PodAnswerError:
        return None
    return read_answer(told, listeners)


def read_answer(told: Any, listeners: Sequence[str]) -> TrustAnswer | None:
    """Return what a broker tells of these listeners; None if it leaves one of them out."""
    if not isinstance(told, dict):
        return None
    found = [told.get(listener) for listener in listeners]
    shown: set[str] = set()
    trusted: list[frozenset[str]] = []
    for each in found:
        if not isinstance(each, dict) or not isinstance(each.get("trusted"), list):
            return None
        shown.add(str(each.get("certificate")))
        trusted.append(frozenset(map(str, each["trusted"])))
    return TrustAnswer(frozenset(shown), frozenset.intersection(*trusted)) if trusted else None
