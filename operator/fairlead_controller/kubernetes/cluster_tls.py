"""TLS of the sessions of many LogClusters on one port: a certificate for each, from its Secret.

A broker names its cluster by SNI, and gets that cluster's certificate. The broker's own certificate
is checked against the authorities of that cluster, and has to name a broker of it. Secrets are read
in each handshake, in its thread, so the next handshake uses a new certificate.
"""

from __future__ import annotations

import base64
import binascii
import logging
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from fairlead_controller.kubernetes.session_gate import ClusterKey
from fairlead_controller.sessions.rare_log import RareLog
from fairlead_tls.certificates import (
    CertificateError,
    PeerIdentity,
    build_peer_identity,
    read_material,
)
from fairlead_tls.engine import TlsRefusedError
from fairlead_tls.peer_check import check_caller
from fairlead_tls.peer_settings import PeerTlsSettings
from fairlead_tls.tls_settings import PemSource, TlsSettings

if TYPE_CHECKING:
    from fairlead_tls.peer_names import PeerName

_log = RareLog(logging.getLogger(__name__))

SECRET_SUFFIX: Final = "controller-tls"  # noqa: S105 (a name)
ALLOW_PLAINTEXT: Final = "fairlead.io/allow-plaintext"

FindSecret = Callable[[ClusterKey], Mapping[str, Any] | None]
"""Returns the Secret with a cluster's certificate, as the API server has it."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The data of a Secret and the identity made from it; None if no usable data was ever in it."""

    data: Mapping[str, str]
    identity: PeerIdentity | None


class ClusterTls:
    """The TLS of a candidate's sessions' port."""

    allows_plaintext = True
    """True because clusters without TLS share the port; `problem_of` checks once the broker's
    cluster is known."""

    def __init__(
        self, find: FindSecret, wants_tls: Callable[[ClusterKey], bool] = lambda key: False
    ) -> None:
        """`wants_tls` tells what a LogCluster says: it also holds while its Secret is not found."""
        self._find = find
        self._wants_tls = wants_tls
        self._found: dict[ClusterKey, _Found] = {}
        self._lock = threading.Lock()
        self._clusters: WeakKeyDictionary[ssl.SSLContext, str] = WeakKeyDictionary()
        self._context = self._build_context()

    def open_context(self) -> ssl.SSLContext:
        """Return a context that has no certificate until SNI names the cluster."""
        return self._context

    def identify(self, tls: ssl.SSLObject) -> PeerName:
        """Return the peer that the shown certificate names, of the cluster that SNI named."""
        cluster = self._clusters.get(tls.context)
        if cluster is None:
            raise TlsRefusedError("it does not say by SNI which cluster it means")
        return check_caller(tls.getpeercert(binary_form=True), cluster)

    def problem_of(self, key: ClusterKey, peer: PeerName | None) -> str | None:
        """Tell why a peer may not speak for a cluster; None if it may."""
        cluster = "/".join(key)
        if peer is not None:
            return None if peer.cluster == cluster else f"{peer} is none of {cluster}"
        secret = self._find(key)
        is_open = not self._wants_tls(key) if secret is None else _allows_plaintext(secret)
        if is_open:
            return None
        return (
            f"brokers of {cluster} have to come over TLS: set "
            "listener.security.protocol.map=CONTROLLER:SSL and wss:// in "
            "fairlead.controller.sessions"
        )

    def find_end(self, key: ClusterKey) -> float | None:
        """Return when a cluster's certificate ends, in Unix time; None if it has none.

        Call this in a thread: like a handshake, it may have to load the Secret's certificate again.
        """
        identity = self._identity_of(key)
        return None if identity is None else identity.ends_s

    def _build_context(self) -> ssl.SSLContext:
        # `_choose` cannot set these later.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.num_tickets = 0
        context.sni_callback = self._choose
        return context

    def _choose(
        self, tls: ssl.SSLSocket | ssl.SSLObject, name: str | None, first: ssl.SSLContext
    ) -> int | None:
        """Give a connection the certificate of the cluster that SNI names; OpenSSL calls this."""
        cluster, _, namespace = (name or "").rpartition(".")
        key = (namespace, cluster)
        identity = self._identity_of(key)
        if identity is None:
            _log.note(
                "unknown server name",
                "no certificate for the cluster %r: it has to be in the Secret %s-%s of its "
                "namespace",
                name,
                cluster,
                SECRET_SUFFIX,
            )
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        tls.context = identity.context
        return None

    def _identity_of(self, key: ClusterKey) -> PeerIdentity | None:
        secret = self._find(key)
        with self._lock:
            if secret is None:
                self._found.pop(key, None)
                return None
            data = secret.get("data") or {}
            found = self._found.get(key)
            if found is None or found.data != data:
                before = None if found is None else found.identity
                found = self._found[key] = _Found(data, self._take(key, data, before))
            return found.identity

    def _take(
        self, key: ClusterKey, data: Mapping[str, str], before: PeerIdentity | None
    ) -> PeerIdentity | None:
        """Build what connections need from new data; unusable data leaves the previous result."""
        cluster = "/".join(key)
        try:
            settings = _settings_of(key, data)
            material = read_material(settings.tls)
            if before is not None and material == before.material:
                return before
            identity = _check_cluster(build_peer_identity(settings, material, previous=before), key)
        except CertificateError as error:
            _log.note(
                f"certificate of {cluster}", "%s keeps the certificate it had: %s", cluster, error
            )
            return before
        self._clusters[identity.context] = cluster
        return identity


def _check_cluster(identity: PeerIdentity, key: ClusterKey) -> PeerIdentity:
    if identity.name.cluster != "/".join(key):
        raise CertificateError(f"{identity.name} is none of {'/'.join(key)}")
    return identity


def _settings_of(key: ClusterKey, data: Mapping[str, str]) -> PeerTlsSettings:
    where = f"Secret {key[0]}/{key[1]}-{SECRET_SUFFIX}"
    texts: dict[str, PemSource] = {}
    for name in ("tls.key", "tls.crt", "ca.crt"):
        try:
            text = base64.b64decode(data.get(name) or "", validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise CertificateError(f"{where}: {name}: {error}") from None
        texts[name] = PemSource(f"{where}: {name}", text=text)
    return PeerTlsSettings(
        TlsSettings(
            key=texts["tls.key"],
            chain=texts["tls.crt"],
            trust=texts["ca.crt"],
            key_password=None,
            verify_mode=ssl.CERT_REQUIRED,
            oldest=ssl.TLSVersion.TLSv1_3,
            newest=ssl.TLSVersion.TLSv1_3,
            ciphers=None,
            allow_dn_changes=True,
            allow_san_changes=True,
        ),
        broker_id=None,
    )


def _allows_plaintext(secret: Mapping[str, Any]) -> bool:
    annotations = secret.get("metadata", {}).get("annotations") or {}
    return annotations.get(ALLOW_PLAINTEXT) == "true"
