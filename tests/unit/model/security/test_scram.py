"""The exchanges that RFC 7677 gives as an example, and what credentials show of themselves."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from fairlead_model.security.scram import ScramCredential, ScramMechanism, derive


def test_derived_keys_verify_the_exchange_of_rfc_7677() -> None:
    credential = derive(
        ScramMechanism.SCRAM_SHA_256,
        "pencil",
        4096,
        base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="),
    )
    # RFC 7677, section 3: the messages of both sides, and what ends them.
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        f"c=biws,r={nonce}"
    ).encode()
    signature = hmac.digest(credential.server_key, exchange, "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    masks = hmac.digest(credential.stored_key, exchange, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, masks, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_keys_are_as_long_as_the_hash_and_no_text_of_a_credential_shows_them(
    mechanism: ScramMechanism,
) -> None:
    credential = derive(mechanism, "pencil", 4096, b"salt-of-the-user")
    assert isinstance(credential, ScramCredential)
    assert len(credential.stored_key) == len(credential.server_key) == mechanism.key_bytes
    shown = repr(credential)
    assert repr(credential.stored_key) not in shown
    assert repr(credential.server_key) not in shown
    assert repr(credential.salt) not in shown


def test_names_of_mechanisms_are_those_that_clients_send() -> None:
    assert [each.sasl_name for each in ScramMechanism] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
