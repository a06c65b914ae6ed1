"""What a certificate says of its owner is compared exactly, and in doubt it says nothing."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import ExtensionOID, NameOID
from hypothesis import example, given
from hypothesis import strategies as st
from secure_listener import Certificates

from fairlead_tls.peer_names import (
    PeerName,
    PeerNameError,
    find_caller,
    find_own_name,
    parse_peer_name,
    read_peer_names,
    server_name,
)

WORDS = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)
CLUSTERS = st.one_of(WORDS, st.tuples(WORDS, WORDS).map("/".join))
CLIENT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
IDS = st.one_of(st.none(), st.integers(0, 2**31 - 1))


@given(CLUSTERS, IDS)
def test_a_name_is_read_as_it_is_written(cluster: str, broker_id: int | None) -> None:
    name = PeerName(cluster, broker_id)
    assert parse_peer_name(str(name)) == name


@given(CLUSTERS)
@example("prod..eu")
@example(".prod")
@example("x" * 64)
def test_what_is_said_by_sni_can_be_said(cluster: str) -> None:
    """A name of a cluster need be none in DNS: of one that is not, nothing is said."""
    name = server_name(cluster)
    CLIENT.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name or "h")
    assert (name is None) == any(len(label) not in range(1, 64) for label in labels_of(cluster))


def labels_of(cluster: str) -> list[str]:
    """Return what stands between the points of a server name; the last may be empty."""
    return ".".join(reversed(cluster.split("/"))).removesuffix(".").split(".")


@pytest.mark.parametrize(
    "uri",
    [
        "fairlead://a/broker/",
        "fairlead://a/broker/01",
        "fairlead://a/broker/-1",
        "fairlead://a/broker/+1",
        "fairlead://a/broker/1/",
        "fairlead://a/broker/1?x",
        "fairlead://a/broker/1\n",
        "fairlead://a/broker/\u0661",
        "fairlead://a/b/c/broker/1",
        "fairlead:///broker/1",
        "fairlead://a/controller/",
        "FAIRLEAD://a/controller",
        "https://a/broker/1",
        " fairlead://a/broker/1",
        "fairlead://a b/broker/1",
    ],
)
def test_what_is_no_name_means_nobody(uri: str) -> None:
    assert parse_peer_name(uri) is None


def test_names_stand_among_the_uris_of_a_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    path = certificates.issue(
        "fairlead-broker-9",
        hosts=("fairlead.example",),
        uris=("https://example.com", "fairlead://a/broker/7", "fairlead://b/controller"),
    )
    names = read_peer_names(x509.load_pem_x509_certificate(path.read_bytes()))
    assert names == (PeerName("a", 7), PeerName("b"))
    bare = x509.load_pem_x509_certificate(certificates.issue("bare", hosts=()).read_bytes())
    assert read_peer_names(bare) == ()


def test_names_that_cannot_be_read_are_an_error_of_the_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    authority = load_pem_private_key(certificates.authority.key, None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")])
    # An x400Address, which nobody reads.
    odd = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\x30\x02\xa3\x00")
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(authority.public_key()).serial_number(1)
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    certificate = builder.add_extension(odd, critical=False).sign(authority, hashes.SHA256())
    with pytest.raises(ValueError, match="not supported"):
        read_peer_names(certificate)


def test_a_broker_has_one_name_of_its_own() -> None:
    names = (PeerName("a", 7), PeerName("a"))
    assert find_own_name(names, 7) == PeerName("a", 7)
    assert find_own_name(names, None) == PeerName("a")
    with pytest.raises(PeerNameError, match=r"fairlead://CLUSTER/broker/8; it has 0"):
        find_own_name(names, 8)
    with pytest.raises(PeerNameError, match="it has 2"):
        find_own_name((PeerName("a", 7), PeerName("b", 7)), 7)


def test_a_caller_is_one_of_the_same_cluster() -> None:
    assert find_caller((PeerName("b", 1), PeerName("a", 7)), "a") == PeerName("a", 7)
    with pytest.raises(PeerNameError, match="fairlead://a/, and has 0"):
        find_caller((PeerName("b", 7),), "a")
    with pytest.raises(PeerNameError, match="has 2"):
        find_caller((PeerName("a", 7), PeerName("a", 8)), "a")
