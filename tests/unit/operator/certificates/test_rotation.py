"""An authority gives way to the next: trusted first, then issuing; the former one goes last."""

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from fairlead_operator.certificates.authority import KeyPair, make_authority, renewal_time
from fairlead_operator.certificates.rotation import (
    CA_KEY,
    Authorities,
    AuthorityError,
    RotationSight,
    Step,
    announce,
    decide_step,
    drop,
    promote,
    read_authorities,
    write_authorities,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
FIRST, SECOND = make_authority("first", NOW), make_authority("second", NOW)
CALM = Authorities(current=FIRST)
QUIET = RotationSight(is_asked_for=False, is_trusted=False, is_issued=False, overlap=WEEK)
ALL_DONE = replace(QUIET, is_trusted=True, is_issued=True)


def test_nothing_to_do_until_it_is_old_or_somebody_asks() -> None:
    due = renewal_time(FIRST.certificate)
    assert decide_step(CALM, ALL_DONE, due - timedelta(seconds=1)) is Step.NONE
    assert decide_step(CALM, QUIET, due) is Step.ANNOUNCE
    assert decide_step(CALM, replace(QUIET, is_asked_for=True), NOW) is Step.ANNOUNCE


def test_the_next_one_issues_only_when_brokers_trust_it_and_clients_had_time() -> None:
    announced = announce(CALM, SECOND)
    assert announced.trusted == FIRST.certificate + SECOND.certificate
    later = NOW + WEEK
    assert decide_step(announced, replace(ALL_DONE, is_trusted=False), later) is Step.NONE
    assert decide_step(announced, ALL_DONE, later - timedelta(minutes=6)) is Step.NONE
    assert decide_step(announced, ALL_DONE, later) is Step.PROMOTE


def test_the_former_one_goes_only_when_nothing_of_it_is_in_use() -> None:
    promoted = promote(announce(CALM, SECOND), NOW)
    assert promoted.current == SECOND
    assert set(promoted.trusted.split(b"-----END")) == set(
        (SECOND.certificate + FIRST.certificate).split(b"-----END")
    )
    later = NOW + WEEK
    assert decide_step(promoted, replace(ALL_DONE, is_issued=False), later) is Step.NONE
    assert decide_step(promoted, ALL_DONE, later - timedelta(seconds=1)) is Step.NONE
    assert decide_step(promoted, ALL_DONE, later) is Step.DROP
    assert drop(promoted) == Authorities(current=SECOND)


def test_no_second_rotation_begins_before_the_first_has_ended() -> None:
    promoted = promote(announce(CALM, SECOND), NOW)
    asked = replace(QUIET, is_asked_for=True)
    assert decide_step(promoted, asked, NOW + WEEK) is Step.NONE


def test_when_the_current_one_is_over_the_next_one_issues_at_once() -> None:
    late = NOW + timedelta(days=3650)
    announced = announce(CALM, make_authority("late", late))
    assert decide_step(announced, QUIET, late) is Step.PROMOTE


@pytest.mark.parametrize(
    "authorities",
    [CALM, announce(CALM, SECOND), promote(announce(CALM, SECOND), NOW)],
    ids=["calm", "announced", "promoted"],
)
def test_a_secret_keeps_each_stage(authorities: Authorities) -> None:
    assert read_authorities(write_authorities(authorities)) == authorities


def test_a_secret_that_holds_no_authority_is_refused() -> None:
    good = write_authorities(CALM)
    with pytest.raises(AuthorityError, match="missing"):
        read_authorities({})
    with pytest.raises(AuthorityError, match=r"ca\.key is not the key"):
        read_authorities(good | {CA_KEY: base64.b64encode(SECOND.key).decode()})
    with pytest.raises(AuthorityError, match=r"ca\.key"):
        read_authorities(good | {CA_KEY: "no base64!"})


def test_an_authority_that_could_issue_nothing_is_refused() -> None:
    """Such as one of openssl: a key of another kind, or a certificate without its identifier."""
    for key, has_identifier in (
        (rsa.generate_private_key(65537, 2048), True),
        (ec.generate_private_key(ec.SECP256R1()), False),
    ):
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "theirs")])
        builder = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + WEEK)
        if has_identifier:
            identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
            builder = builder.add_extension(identifier, critical=False)
        pair = KeyPair(
            builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )
        assert pair.fits()
        with pytest.raises(AuthorityError, match=r"ca\.crt"):
            read_authorities(write_authorities(Authorities(current=pair)))
