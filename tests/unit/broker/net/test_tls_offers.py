"""What a listener with TLS offers a stranger: the questions that testssl.sh asks.

Old versions and weak suites are asked for in bytes, because OpenSSL's clients would not.
"""

import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from live_broker import DEADLINE_S, FrameClient, LiveBroker
from needed_tools import need
from secure_listener import Certificates, security_of, tls_settings
from waiting import wait_until

from fairlead_broker.net.server import ServerLimits
from fairlead_operator.certificates.authority import KeyPair, issue
from fairlead_wire.messages.api_versions import ApiVersionsRequest

ALERT, HANDSHAKE = 21, 22
HANDSHAKE_FAILURE, PROTOCOL_VERSION = 40, 70
VERSIONS = {"SSL 3.0": 0x0300, "TLS 1.0": 0x0301, "TLS 1.1": 0x0302, "TLS 1.2": 0x0303}
GOOD_SUITE = 0xC02B  # ECDHE-ECDSA-AES128-GCM-SHA256
WEAK_SUITES = {
    "no encryption": (0x0000, 0x0001, 0x0002, 0x003B, 0xC001, 0xC006, 0xC00B, 0xC010),
    "no authentication": (0x0018, 0x001B, 0x0034, 0x003A, 0x006C, 0x006D, 0xC016, 0xC018, 0xC019),
    "export keys": (0x0003, 0x0006, 0x0008, 0x000B, 0x000E, 0x0011, 0x0014, 0x0017, 0x0019),
    "RC4": (0x0004, 0x0005, 0xC002, 0xC007, 0xC00C, 0xC011),
    "DES, 3DES, IDEA": (0x0007, 0x0009, 0x000A, 0x0015, 0x0016, 0xC003, 0xC008, 0xC00D, 0xC012),
    "no forward secrecy": (0x002F, 0x0035, 0x003C, 0x003D, 0x009C, 0x009D, 0xC004, 0xC02D),
    "SHA-1": (0xC009, 0xC00A, 0xC013, 0xC014),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("offers"))


@pytest.fixture(scope="module")
def live(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveBroker]:
    security = security_of(tls_settings(certificates))
    with LiveBroker(tmp_path_factory.mktemp("live"), ServerLimits(), security=security) as broker:
        yield broker


def client_hello(version: int, suites: Sequence[int], compressions: bytes = b"\0") -> bytes:
    """A ClientHello of TLS 1.2 or older, for any curve and any signature of its time."""
    extensions = (
        struct.pack(">HHHH", 10, 4, 2, 0x0017)  # supported_groups: secp256r1
        + struct.pack(">HHBB", 11, 2, 1, 0)  # ec_point_formats: uncompressed
        + struct.pack(">HHH", 13, 8, 6)  # signature_algorithms: ECDSA, RSA-PSS, RSA with SHA-256
        + struct.pack(">HHH", 0x0403, 0x0804, 0x0401)
        + struct.pack(">HHB", 0xFF01, 1, 0)  # renegotiation_info
    )
    body = (
        struct.pack(">H", version)
        + bytes(32)
        + b"\0"
        + struct.pack(f">H{len(suites)}H", 2 * len(suites), *suites)
        + bytes([len(compressions)])
        + compressions
        + struct.pack(">H", len(extensions))
        + extensions
    )
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    return struct.pack(">BHH", HANDSHAKE, min(version, 0x0301), len(handshake)) + handshake


def ask(live: LiveBroker, hello: bytes) -> tuple[int, bytes]:
    """The type and the content of the first record of the answer."""
    with (
        socket.create_connection(("127.0.0.1", live.port), DEADLINE_S) as connection,
        connection.makefile("rb") as answer,
    ):
        connection.sendall(hello)
        kind, _, size = struct.unpack(">BHH", answer.read(5))
        return kind, answer.read(size)


def refusal(live: LiveBroker, version: int, suites: Sequence[int]) -> int:
    """The code of the fatal alert that a ClientHello is answered with."""
    kind, content = ask(live, client_hello(version, suites))
    assert (kind, content[0]) == (ALERT, 2)
    return content[1]


def test_a_good_suite_is_taken_and_nothing_is_compressed(live: LiveBroker) -> None:
    """This also says that what is refused below is refused for what it asks, not for its form."""
    hello = client_hello(VERSIONS["TLS 1.2"], [GOOD_SUITE], compressions=b"\x01\0")
    kind, content = ask(live, hello)
    assert (kind, content[0]) == (HANDSHAKE, 2)
    version, session_size = struct.unpack_from(">H32xB", content, 4)
    suite, compression = struct.unpack_from(">HB", content, 39 + session_size)
    assert (version, suite, compression) == (VERSIONS["TLS 1.2"], GOOD_SUITE, 0)


@pytest.mark.parametrize("name", ["SSL 3.0", "TLS 1.0", "TLS 1.1"])
def test_old_versions_are_refused(live: LiveBroker, name: str) -> None:
    suites = [0xC013, 0xC009, 0x002F, GOOD_SUITE]
    # SSL 3.0 has no alert for its version.
    code = HANDSHAKE_FAILURE if name == "SSL 3.0" else PROTOCOL_VERSION
    assert refusal(live, VERSIONS[name], suites) == code


@pytest.mark.parametrize("kind", WEAK_SUITES)
def test_weak_suites_are_not_offered(live: LiveBroker, kind: str) -> None:
    assert refusal(live, VERSIONS["TLS 1.2"], WEAK_SUITES[kind]) == HANDSHAKE_FAILURE


def test_the_better_suite_is_taken_whatever_the_client_likes(
    live: LiveBroker, certificates: Certificates
) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384")
    with FrameClient(live.port) as client:
        tls = client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        assert tls.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"  # type: ignore[index]


def s_client(live: LiveBroker, *flags: str | Path, stdin: str = "") -> str:
    """What OpenSSL's client says of a connection."""
    need("openssl")
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{live.port}", *map(str, flags)]
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    return done.stdout + done.stderr


def test_a_client_cannot_renegotiate(live: LiveBroker) -> None:
    said = s_client(live, "-tls1_2", stdin="R\n")
    assert "Secure Renegotiation IS supported" in said
    assert "RENEGOTIATING" in said and "no renegotiation" in said


def test_the_chain_has_what_a_client_that_knows_the_root_alone_needs(tmp_path: Path) -> None:
    """And not the root itself, which says nothing to who does not know it."""
    now = datetime.now(UTC)
    root = authority("Root", now)
    below = authority("Below", now, root)
    leaf = issue(below, "server", now, hosts=("localhost",))
    files = Certificates(tmp_path)
    files.write("server", KeyPair(leaf.certificate + below.certificate, leaf.key))
    files.ca.write_bytes(root.certificate)
    security = security_of(tls_settings(files))
    with LiveBroker(tmp_path, ServerLimits(), security=security) as live:
        verify = ("-CAfile", files.ca, "-verify_return_error", "-verify_hostname", "localhost")
        said = s_client(live, "-showcerts", *verify)
        assert "Verify return code: 0 (ok)" in said
        assert said.count("-----BEGIN CERTIFICATE-----") == 2
        assert said.index("s:CN = server") < said.index("s:CN = Below")
        assert "hostname mismatch" in s_client(live, *verify[:3], "-verify_hostname", "other")


def authority(name: str, now: datetime, issuer: KeyPair | None = None) -> KeyPair:
    """An authority that may have others below it."""
    from cryptography.hazmat.primitives import serialization

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer, above = key, subject
    if issuer is not None:
        above = x509.load_pem_x509_certificate(issuer.certificate).subject
        loaded = serialization.load_pem_private_key(issuer.key, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signer = loaded
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(above)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    key_pem = key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate.public_bytes(encoding), key_pem)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_old_session_lets_nobody_in_whose_authority_is_not_trusted_any_more(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Neither by a ticket, of which there are none, nor by the number of a session."""
    files, others = Certificates(tmp_path / "own"), Certificates(tmp_path / "others", "Others")
    trust = tmp_path / "trust.pem"
    trust.write_bytes(files.authority.certificate + others.authority.certificate)
    settings = tls_settings(files, ssl_client_auth="required")
    settings["ssl.truststore.location"] = str(trust)
    context = ssl.create_default_context(cafile=str(files.ca))
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(others.issue("revoked", is_client=True))

    def is_let_in(session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession | None]:
        with FrameClient(server.port) as client:
            try:
                tls = client.socket = context.wrap_socket(
                    client.socket, server_hostname="localhost", session=session
                )
                is_answered = client.call(ApiVersionsRequest(), 0).error_code == 0
            except (ssl.SSLError, ConnectionError):
                return False, None
            return is_answered, tls.session

    with LiveBroker(tmp_path, ServerLimits(), security=security_of(settings)) as server:
        may_enter, session = is_let_in(None)
        assert may_enter
        assert session is None or not session.has_ticket
        trust.write_bytes(files.authority.certificate)
        wait_until(lambda: not is_let_in(None)[0])
        assert not is_let_in(session)[0]
