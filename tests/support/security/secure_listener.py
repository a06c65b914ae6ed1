"""A listener with TLS, SASL or both for tests: settings, certificates, users."""

import ssl
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from fairlead_broker.listener import Listener
from fairlead_broker.security.credentials import CredentialChanged
from fairlead_broker.security.listener_security import ListenerSecurity, read_listener_security
from fairlead_broker.security.sasl.salt_looks import SaltLook, look_of
from fairlead_model.configs.config_values import BrokerValues
from fairlead_model.security.scram import ScramCredential, ScramMechanism, derive
from fairlead_operator.certificates.authority import KeyPair, issue, make_authority

HOSTS = ("127.0.0.1", "localhost")
VERSION_3 = bytes.fromhex("a003020102")
VERSION_2 = bytes.fromhex("a003020101")
CLIENT = Listener("CLIENT", "127.0.0.1", 0, "127.0.0.1", 0)


class StaticCredentials:
    """Users of a test, whose passwords may change."""

    def __init__(self, **passwords: str) -> None:
        self._known: dict[tuple[ScramMechanism, str], ScramCredential] = {}
        self._watchers: list[CredentialChanged] = []
        for user, password in passwords.items():
            for mechanism in ScramMechanism:
                self.set(mechanism, user, password)

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._known.get((mechanism, user))

    def looks(self, mechanism: ScramMechanism) -> Mapping[SaltLook, int]:
        found = (each for (its, _), each in self._known.items() if its is mechanism)
        return Counter(map(look_of, found))

    def watch(self, changed: CredentialChanged) -> None:
        self._watchers.append(changed)

    def set(self, mechanism: ScramMechanism, user: str, password: str | None) -> None:
        if password is None:
            self._known.pop((mechanism, user), None)
        else:
            self._known[mechanism, user] = derive(mechanism, password, 4096, b"salt of a test")
        for changed in self._watchers:
            changed(mechanism, user)


class Certificates:
    """A certificate authority in a folder, with the certificates that it has issued."""

    def __init__(self, directory: Path, name: str = "Test CA") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = make_authority(name, datetime.now(UTC))
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(self.authority.certificate)

    def issue(
        self, name: str, *, is_client: bool = False, hosts: tuple[str, ...] = HOSTS, **options: Any
    ) -> Path:
        """Issue a certificate; return the file with its chain and key."""
        now = options.pop("now", datetime.now(UTC))
        pair = issue(self.authority, name, now, hosts=hosts, is_client=is_client, **options)
        return self.write(name, pair)

    def write(self, name: str, pair: KeyPair) -> Path:
        path = self.directory / f"{name}.pem"
        path.write_bytes(pair.certificate + pair.key)
        return path

    def expired(self, name: str) -> Path:
        then = datetime.now(UTC) - timedelta(days=2)
        return self.issue(name, now=then, life=timedelta(days=1))

    def of_version_2(self, path: Path) -> Path:
        """Sign a certificate anew as one of X.509 version 2, which cryptography refuses to read."""
        pem = path.read_bytes()
        certificate = x509.load_pem_x509_certificate(pem)
        key = load_pem_private_key(self.authority.key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        before = certificate.tbs_certificate_bytes
        content = before.replace(VERSION_3, VERSION_2, 1)
        whole = certificate.public_bytes(Encoding.DER)
        after = whole[whole.index(before) + len(before) :]
        algorithm = after[: 2 + after[1]]
        signature = key.sign(content, ec.ECDSA(hashes.SHA256()))
        der = _der(0x30, content + algorithm + _der(0x03, b"\0" + signature))
        changed = path.with_suffix(".2.pem")
        owner = pem[pem.index(b"-----BEGIN PRIVATE") :]
        changed.write_bytes(ssl.DER_cert_to_PEM_cert(der).encode() + owner)
        return changed


def _der(tag: int, content: bytes) -> bytes:
    """Encode a value of ASN.1."""
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + content


def security_of(
    settings: Mapping[str, str], listener: Listener = CLIENT
) -> dict[str, ListenerSecurity]:
    return read_listener_security(BrokerValues(static=dict(settings)), [listener])


def tls_settings(certificates: Certificates, **more: str) -> dict[str, str]:
    server = certificates.directory / "server.pem"
    if not server.exists():
        certificates.issue("server")
    return {
        "listener.security.protocol.map": "CLIENT:SSL",
        "ssl.keystore.location": str(server),
        "ssl.truststore.location": str(certificates.ca),
        **{name.replace("_", "."): text for name, text in more.items()},
    }
