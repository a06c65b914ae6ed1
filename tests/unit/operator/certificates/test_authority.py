"""Certificates of our own authority: who may show them, and when they are issued anew."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from fairlead_operator.certificates.authority import (
    KeyPair,
    alternative_names,
    is_due,
    issue,
    issue_client,
    make_authority,
    renewal_time,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
AUTHORITY = make_authority("demo", NOW)
LIFE = timedelta(days=90)


def test_a_client_has_its_name_alone_and_is_no_server() -> None:
    leaf = x509.load_pem_x509_certificate(issue_client(AUTHORITY, "shop", NOW).certificate)
    assert leaf.subject.rfc4514_string() == "CN=shop"
    usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    with pytest.raises(x509.ExtensionNotFound):
        leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)


def test_names_and_addresses_of_a_server() -> None:
    hosts = ["*.demo-brokers.shop.svc", "demo-bootstrap", "10.0.0.1", "fd00::1"]
    made = issue(AUTHORITY, "demo", NOW, hosts=hosts)
    assert alternative_names(made.certificate) == set(hosts)


def test_due_after_two_thirds_of_life_or_a_little_before() -> None:
    for _ in range(20):
        made = issue(AUTHORITY, "demo", NOW, life=LIFE).certificate
        due = renewal_time(made)
        assert LIFE * 0.61 < due - NOW <= LIFE * 2 / 3
        assert not is_due(made, due - timedelta(seconds=1), authority=AUTHORITY.certificate)
        assert is_due(made, due, authority=AUTHORITY.certificate)


def test_what_was_issued_together_is_renewed_apart() -> None:
    issued = [issue(AUTHORITY, "demo", NOW, life=LIFE).certificate for _ in range(8)]
    assert len({renewal_time(each) for each in issued}) > 1


def test_due_under_another_authority_of_the_same_name() -> None:
    other = make_authority("demo", NOW)
    made = issue(AUTHORITY, "demo", NOW, life=LIFE).certificate
    assert is_due(made, NOW, authority=other.certificate)
    assert is_due(b"no certificate", NOW, authority=AUTHORITY.certificate)


def test_none_outlives_its_authority() -> None:
    late = NOW + timedelta(days=3600)
    leaf = x509.load_pem_x509_certificate(issue_client(AUTHORITY, "shop", late).certificate)
    authority = x509.load_pem_x509_certificate(AUTHORITY.certificate)
    assert leaf.not_valid_after_utc == authority.not_valid_after_utc


def test_a_key_of_another_certificate_does_not_fit() -> None:
    assert AUTHORITY.fits()
    other = make_authority("demo", NOW)
    assert not KeyPair(AUTHORITY.certificate, other.key).fits()
    assert not KeyPair(b"", AUTHORITY.key).fits()
    assert "PRIVATE" not in repr(AUTHORITY)
