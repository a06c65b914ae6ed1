"""Who a certificate says that its owner is: a broker by its id, or a controller, of one cluster.

The name is a URI among the certificate's alternative names:

    fairlead://CLUSTER/broker/ID
    fairlead://CLUSTER/controller

CLUSTER is a name that whoever issues certificates has chosen, the same in all certificates of a
cluster: one word, or two with a slash between them (NAMESPACE/NAME on Kubernetes). No address and
no common name says who a peer is, so a certificate of a user or of a server is none of a broker.
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
    """A broker, or a controller where there is no `broker_id`."""

    cluster: str
    broker_id: int | None = None

    def __str__(self) -> str:
        role = "controller" if self.broker_id is None else f"broker/{self.broker_id}"
        return f"fairlead://{self.cluster}/{role}"


class PeerNameError(Exception):
    """A certificate does not say who its owner is, or says that it is somebody else."""


def parse_peer_name(uri: str) -> PeerName | None:
    """Return what a URI means; None if it is no name of a peer."""
    match = _NAME.fullmatch(uri)
    if match is None:
        return None
    return PeerName(match[1], None if match[2] is None else int(match[2]))


def server_name(cluster: str) -> str | None:
    """Return what a broker says by SNI, so that a controller of many clusters knows which.

    The words of the cluster's name in the order of domain names: NAME.NAMESPACE. None if that is no
    name in DNS, as those of clusters on Kubernetes are: whoever has chosen it has one cluster.
    """
    name = ".".join(reversed(cluster.split("/")))
    try:
        name.encode("idna")
    except UnicodeError:
        return None
    return name


def read_peer_names(certificate: x509.Certificate) -> tuple[PeerName, ...]:
    """Return all names of peers that a certificate has. ValueError if it cannot be read."""
    # Here, because a broker without TLS does without it.
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
    """Return the name that makes a certificate that of this broker, or of a controller.

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
    """Return who a peer of this cluster is by its certificate; PeerNameError if that is unclear."""
    found = [name for name in names if name.cluster == cluster]
    if len(found) != 1:
        raise PeerNameError(
            f"its certificate must have one URI among its alternative names that begins with "
            f"fairlead://{cluster}/, and has {len(found)}: issue one for this broker or controller"
        )
    return found[0]
