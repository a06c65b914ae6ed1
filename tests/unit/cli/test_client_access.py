"""Which file says how the clients of a command log in."""

from __future__ import annotations

import errno
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from plain_certificates import PlainCertificates, check_as_newer_pythons_do, shake_hands

from fairlead_cli.client import access
from fairlead_cli.client.answering import Address, find_answering
from fairlead_cli.client.connection import build_admin, build_consumer, build_producer
from fairlead_cli.errors import CliError, InputError
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.secure_files import admin_file

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def nothing_noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(access, "_settings", {})
    monkeypatch.setattr(access, "_files", [])
    yield


def written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("bootstrap.servers=a:1\nsecurity.protocol=sasl_ssl\n")
    return path


def test_the_administrators_file_of_a_secure_local_cluster_is_taken(tmp_path: Path) -> None:
    access.note_local_cluster(tmp_path)
    assert access.configured_file() is None
    file = written(admin_file(Layout(tmp_path)))
    access.note_local_cluster(tmp_path)
    assert access.configured_file() == file


def test_a_secure_cluster_of_somebody_else_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder of clients is for its owner alone, who may be another one than we are."""

    def forbid(path: Path, *_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "stat", forbid)
    with pytest.raises(CliError, match=r"/admin.librdkafka: Permission denied") as refused:
        access.note_local_cluster(tmp_path)
    assert "--client-config FILE" in (refused.value.hint or "")


def test_a_file_that_was_named_stands_above_it(tmp_path: Path) -> None:
    written(admin_file(Layout(tmp_path)))
    named = written(tmp_path / "mine.librdkafka")
    access.note_client_file(named)
    access.note_local_cluster(tmp_path)
    assert access.configured_file() == named


def test_a_file_that_cannot_be_taken_is_not_noted(tmp_path: Path) -> None:
    java = tmp_path / "mine.properties"
    java.write_text("sasl.jaas.config=x\n")
    with pytest.raises(InputError):
        access.note_client_file(java)
    assert access.configured_file() is None


def test_a_file_that_it_names_has_to_be_there(tmp_path: Path) -> None:
    file = tmp_path / "mine.librdkafka"
    file.write_text(f"security.protocol=ssl\nssl.ca.location={tmp_path}/ca.pem\n")
    with pytest.raises(InputError, match=r"there is no .*/ca.pem, which ssl.ca.location names"):
        access.note_client_file(file)
    (tmp_path / "ca.pem").touch()
    access.note_client_file(file)


def test_a_setting_that_librdkafka_does_not_know_is_wrong_usage(tmp_path: Path) -> None:
    file = tmp_path / "mine.librdkafka"
    file.write_text("securty.protocol=ssl\n")
    access.note_client_file(file)
    for build in (build_admin, build_consumer, lambda at: build_producer(at, {})):
        with pytest.raises(InputError, match=r'mine.librdkafka: .*"securty.protocol"'):
            build("127.0.0.1:1")


def encrypted(folder: Path, *settings: str) -> ssl.SSLContext:
    file = folder / "mine.librdkafka"
    file.write_text("\n".join(("security.protocol=sasl_ssl", *settings)))
    access.note_client_file(file)
    context = access.build_context()
    assert context is not None
    return context


def test_authorities_are_where_librdkafka_looks_for_them(tmp_path: Path) -> None:
    """In the system's places, which it calls `probe`, too, or in a folder."""
    default = encrypted(tmp_path)
    probed = encrypted(tmp_path, "ssl.ca.location=probe")
    assert probed.cert_store_stats() == default.cert_store_stats()
    in_folder = encrypted(tmp_path, f"ssl.ca.location={tmp_path}")
    assert in_folder.cert_store_stats()["x509"] == 0
    for context in (default, probed, in_folder):
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.verify_flags == ssl.VERIFY_X509_TRUSTED_FIRST


def test_a_broker_is_checked_as_librdkafka_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.13 on, a certificate without key identifiers was refused."""
    check_as_newer_pythons_do(monkeypatch)
    certificates = PlainCertificates(tmp_path)
    context = encrypted(tmp_path, f"ssl.ca.location={certificates.ca}")
    shake_hands(context, certificates.issue("broker"))


def test_an_intermediate_authority_alone_is_not_enough_as_for_librdkafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python 3.13 on, it was. Then librdkafka failed without a reason."""
    check_as_newer_pythons_do(monkeypatch)
    root = PlainCertificates(tmp_path / "root")
    certificates = PlainCertificates(tmp_path / "of-shop", "Shop", root.authority)
    context = encrypted(tmp_path, f"ssl.ca.location={certificates.ca}")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get issuer certificate"):
        shake_hands(context, certificates.issue("broker"))


@pytest.mark.parametrize("no", ["false", "F", "0"])
def test_whoever_asks_for_no_verification_gets_none(tmp_path: Path, no: str) -> None:
    context = encrypted(tmp_path, f"enable.ssl.certificate.verification={no}")
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    context = encrypted(tmp_path, "enable.ssl.certificate.verification=true")
    assert context.verify_mode == ssl.CERT_REQUIRED


def make_encrypted_key(folder: Path) -> tuple[Path, Path]:
    """Return a certificate and its key, which the pass phrase `secret` opens."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shop")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "shop.crt", folder / "shop.key"
    certificate_file.write_bytes(certificate.public_bytes(Encoding.PEM))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    key_file.write_bytes(pem)
    return certificate_file, key_file


def test_authorities_that_are_no_pem_are_told_before_anybody_is_asked(tmp_path: Path) -> None:
    """They were told as a broker that does not speak TLS."""
    authorities = tmp_path / "ca.pem"
    authorities.write_text("no PEM")
    file = tmp_path / "mine.librdkafka"
    file.write_text(f"security.protocol=ssl\nssl.ca.location={authorities}\n")
    access.note_client_file(file)
    with pytest.raises(InputError, match=r"ssl.ca.location: .*ca.pem holds no certificates"):
        find_answering([Address("127.0.0.1", 1)])


def test_an_encrypted_key_needs_its_pass_phrase_in_the_file(tmp_path: Path) -> None:
    """OpenSSL asked the terminal for it, in a thread, which took what was typed there."""
    certificate, key = make_encrypted_key(tmp_path)
    own = (f"ssl.certificate.location={certificate}", f"ssl.key.location={key}")
    with pytest.raises(InputError, match=r"the private key in .*shop.key is encrypted"):
        encrypted(tmp_path, *own)
    with pytest.raises(InputError, match=r"cannot use .*shop.crt with .*shop.key"):
        encrypted(tmp_path, *own, "ssl.key.password=wrong")
    encrypted(tmp_path, *own, "ssl.key.password=secret")
