"""Asks brokers which certificates they show and trust now; a rotation waits for what they say."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead_operator.certificates.authority import fingerprints, is_issued_by
from fairlead_operator.live_objects import Manifest
from fairlead_operator.pod_http import PodAnswerError, ask_pod
from fairlead_operator.specs.certificates import decode_secret
from fairlead_operator.specs.listener_security import keystore_key
from fairlead_operator.specs.names import HTTP_PORT, OPERATOR_LISTENER

TIMEOUT_S: Final = 1.0
CERTIFICATES_PATH: Final = "/certificates"
_LEAF_KEYS: Final = (keystore_key(OPERATOR_LISTENER.lower()), "tls.crt", "user.crt")
"""Keys of Secrets under which certificates of the cluster's authority are."""


@dataclass(frozen=True, slots=True)
class ListenerTrust:
    """What a broker says of its operator's listener: SHA-256 of what it shows, and trusts."""

    certificate: str
    trusted: frozenset[str]


class BrokerTrust:
    """Asks brokers over HTTP."""

    async def ask(self, pods: Sequence[Manifest]) -> list[ListenerTrust]:
        """Return the answers of those brokers that give one."""
        addresses = [str((pod.get("status") or {}).get("podIP") or "") for pod in pods]
        answers = await asyncio.gather(*(_ask(address) for address in addresses if address))
        return [answer for answer in answers if answer is not None]


def is_trusted(told: Sequence[ListenerTrust], wanted: int, trusted: bytes) -> bool:
    """Tell whether all of so many brokers trust these certificates."""
    needed = set(fingerprints(trusted))
    return len(told) >= wanted and all(each.trusted >= needed for each in told)


def is_issued_everywhere(
    told: Sequence[ListenerTrust],
    wanted: int,
    secrets: Sequence[Mapping[str, Any]],
    authority: bytes,
) -> bool:
    """Tell whether brokers show, and all Secrets hold, certificates of this authority only."""
    leaves = [
        leaf for secret in secrets for key in _LEAF_KEYS if (leaf := decode_secret(secret, key))
    ]
    shown = {fingerprints(leaf)[0] for leaf in leaves}
    return (
        len(told) >= wanted
        and all(each.certificate in shown for each in told)
        and all(is_issued_by(leaf, authority) for leaf in leaves)
    )


async def _ask(address: str) -> ListenerTrust | None:
    try:
        answer = await ask_pod(address, HTTP_PORT, CERTIFICATES_PATH, timeout_s=TIMEOUT_S)
        told = answer.json() if answer.status == 200 else None
    except PodAnswerError:
        return None
    listener = told.get(OPERATOR_LISTENER) if isinstance(told, dict) else None
    if not isinstance(listener, dict):
        return None
    trusted = listener.get("trusted")
    if not isinstance(trusted, list):
        return None
    return ListenerTrust(str(listener.get("certificate")), frozenset(map(str, trusted)))
