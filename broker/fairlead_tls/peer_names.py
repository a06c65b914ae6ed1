"""Names of peers in certificates: a broker by its id, or a controller, of one cluster.

The name is a URI among the certificate's alternative names:

    fairlead://CLUSTER/broker/ID
    fairlead://CLUSTER/controller

CLUSTER is a name that the issuer of the certificates chooses, the same in all certificates of a
cluster: one word, or two with a slash between them (NAMESPACE/NAME on Kubernetes). Addresses and
the common name do not identify a peer, so the certificate of a user or of a server does not make
its owner a broker.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cryptography import x509

_WORD: Final = r"[A-Za-z0-9._-]{1,253}"
_NAME: Final = re.compile(
    rf"fairlead://({_WORD}(?:/{_WORD})?)/(?:controller|broker/(0|[1-9][0-9]{{0,9}}))"
)


@dataclass(frozen=True, slots=True)
class PeerName:
    """A broker, or a controller if there is no `broker_id`."""

    cluster: str
    broker_id: int | None = None

    def __str__(self) -> str:
        role = "controller" if self.broker_id is None else f"broker/{self.broker_id}"
        return f"fairlead://{self.cluster}/{role}"


class PeerNameError(Exception):
    """A certificate names no peer, or the wrong one."""


def parse_peer_name(uri: str) -> PeerName | None:
    """Return the peer that a URI names; None if it names none."""
    match = _NAME.fullmatch(uri)
    if match is None:
        return None
    return PeerName(match[1], None if match[2] is None else int(match[2]))


def server_name(cluster: str) -> str | None:
    """Return the name that a broker sends by SNI, so that a server of many clusters knows which.

    It is the words of the cluster's name in the order of domain names: NAME.NAMESPACE. None if this
    is not a valid DNS name. On Kubernetes it always is valid; elsewhere a controller has only one
    cluster.
    """
    name = ".".join(reversed(cluster.split("/")))
    try:
        name.encode("idna")
    except UnicodeError:
        return None
    return name


def read_peer_names(certificate: x509.Certificate) -> tuple[PeerName, ...]:
    """Return all names of peers in a certificate. ValueError if it cannot be read."""
    # Imported here, because a broker without TLS does not need it.
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise ValueError(str(error)) from None
    uris: Sequence[str] = names.get_values_for_type(x509.UniformResourceIdentifier)
    return tuple(name for name in map(parse_peer_name, uris) if name is not None)


def find_own_name(names: Iterable[PeerName], broker_id: int | None) -> PeerName:
    """Return the name in its own certificate that identifies this broker, or a controller.

    PeerNameError unless there is exactly one.
    """
    own = [name for name in names if name.broker_id == broker_id]
    if len(own) != 1:
        wanted = PeerName("CLUSTER", broker_id)
        raise PeerNameError(
            f"the certificate must have one URI among its alternative names that says whose it "
            f"is, {wanted}; it has {len(own)} such"
        )
    return own[0]


def find_caller(names: Iterable[PeerName], cluster: str) -> PeerName:
    """Return the peer of this cluster in a certificate; PeerNameError if not exactly one."""
    found = [name for name in names if name.cluster == cluster]
    if len(found) != 1:
        raise PeerNameError(
            f"its certificate must have one URI among its alternative names that begins with "
            f"fairlead://{cluster}/, and has {len(found)}: issue one for this broker or controller"
        )
    return found[0]
