"""Settings of TLS between peers: nothing is plain by an omission, and what is wrong is named."""

from pathlib import Path
from typing import Any

import pytest
from peer_certificates import PeerCertificates

from fairlead_broker.settings import build_settings
from fairlead_model.configs.config_key import ConfigError
from fairlead_tls.certificates import CertificateError, build_peer_identity, read_material
from fairlead_tls.peer_names import PeerName

MAP = "listener.security.protocol.map"
BASE = {
    "node.id": "2",
    "log.dirs": "data",
    "listeners": "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "fairlead.cluster.secret.file": "secret",
}
STORES = {"ssl.keystore.location": "own.pem", "ssl.truststore.location": "ca.pem"}


def settings(**more: str) -> Any:
    return build_settings(file={**BASE, **more}, environment={}, assignments={})


def test_peers_speak_in_clear_unless_the_map_says_otherwise() -> None:
    plain = settings()
    assert (plain.peer_tls, plain.controller_tls) == (None, None)
    of_clients = settings(**STORES, **{MAP: "CLIENT:SSL"})
    assert (of_clients.peer_tls, of_clients.controller_tls) == (None, None)


def test_each_listener_of_peers_may_have_its_own_files() -> None:
    own = {"listener.name.internal.ssl.keystore.location": "peer.pem"}
    sessions = {"fairlead.controller.sessions": "wss://c:1"}
    found = settings(**STORES, **own, **sessions, **{MAP: "CLIENT:SSL,INTERNAL:SSL,CONTROLLER:SSL"})
    assert found.peer_tls.broker_id == found.controller_tls.broker_id == 2
    assert found.peer_tls.tls.key.path == "peer.pem"
    assert found.controller_tls.tls.key.path == "own.pem"
    assert found.controller_tls.tls.trust.path == "ca.pem"
    # Peers show certificates; clients are asked for none, so nobody is authorized.
    assert not found.access.is_authorizing


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({MAP: "CLIENT:PLAINTEXT,INTERNAL:SASL_SSL"}, "write INTERNAL:SSL for TLS"),
        ({MAP: "CLIENT:PLAINTEXT,INTERNAL:SSL"}, "set ssl.keystore.location"),
        (
            {MAP: "CLIENT:PLAINTEXT,INTERNAL:SSL", "ssl.keystore.location": "own.pem"},
            "listener.name.internal.ssl.truststore.location must name whom",
        ),
        (
            {
                MAP: "CLIENT:PLAINTEXT,INTERNAL:SSL",
                **STORES,
                "listener.name.internal.ssl.client.auth": "none",
            },
            "peers always show certificates",
        ),
        (
            {MAP: "CLIENT:PLAINTEXT", "listener.name.internal.ssl.keystore.location": "own.pem"},
            "must say INTERNAL:SSL, too",
        ),
        (
            {MAP: "CLIENT:PLAINTEXT,CONTROLLER:SSL", **STORES},
            "says CONTROLLER:SSL; write wss://",
        ),
        (
            {MAP: "CLIENT:PLAINTEXT", "fairlead.controller.sessions": "ws://a:1,wss://b:1"},
            "must name CONTROLLER:SSL, too",
        ),
    ],
)
def test_what_is_wrong_or_missing_is_named(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        settings(**given)


def identity(peers: PeerCertificates, path: Path, broker_id: int | None = 2) -> Any:
    found = peers.follow("INTERNAL", broker_id, path)
    return found.current


def test_a_process_learns_its_name_from_its_own_certificate(tmp_path: Path) -> None:
    peers = PeerCertificates(tmp_path)
    assert identity(peers, peers.of(2)).name == PeerName("test", 2)
    assert identity(peers, peers.of(None), None).name == PeerName("test")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"uris": []}, "fairlead://CLUSTER/broker/2; it has 0 such"),
        ({"uris": ["fairlead://test/broker/3"]}, "it has 0 such"),
        ({"uris": ["fairlead://a/broker/2", "fairlead://b/broker/2"]}, "it has 2 such"),
        ({"is_client": True}, "not meant for servers"),
    ],
)
def test_a_certificate_that_cannot_serve_is_not_taken(
    tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    peers = PeerCertificates(tmp_path)
    with pytest.raises(CertificateError, match=reason):
        identity(peers, peers.of(2, **options))


def test_an_authority_issues_nothing_before_it_is_trusted(tmp_path: Path) -> None:
    """Peers with the same trust would refuse the certificate: the old one stays."""
    peers, new = PeerCertificates(tmp_path / "old"), PeerCertificates(tmp_path / "new")
    path = peers.of(2)
    followed = peers.follow("INTERNAL", 2, path)
    before = followed.current
    path.write_bytes(new.of(2).read_bytes())
    settings_ = settings_of(peers, path)
    with pytest.raises(CertificateError, match="trust a new authority before it issues anything"):
        build_peer_identity(settings_, read_material(settings_.tls), previous=before)


def settings_of(peers: PeerCertificates, path: Path) -> Any:
    given = {MAP: "CLIENT:PLAINTEXT,INTERNAL:SSL", **peers.settings("INTERNAL", path)}
    return settings(**given).peer_tls
