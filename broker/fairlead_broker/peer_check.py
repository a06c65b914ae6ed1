"""How brokers prove to each other that they know the cluster's secret, without sending it.

Runs inside SaslHandshake and SaslAuthenticate, as a mechanism of our own, on the brokers' listener:

    caller                                          listener
    SaslHandshake FAIRLEAD-HMAC-SHA256       ──▶
    SaslAuthenticate  caller's nonce         ──▶
                                             ◀──    listener's nonce, listener's proof
    SaslAuthenticate  caller's proof         ──▶    (the caller has checked the listener's)
                                             ◀──    empty: passed

Both nonces are fresh and go into both proofs, each proof under a label of its own: nothing that
was recorded can be replayed or reflected.
"""

from __future__ import annotations

import secrets
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Final

from fairlead_wire.api_keys import ApiKey

MECHANISM: Final = "FAIRLEAD-HMAC-SHA256"
NONCE_SIZE: Final = 32
PROOF_SIZE: Final = 32

BEFORE_PROOF: Final = frozenset(
    {int(ApiKey.API_VERSIONS), int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)}
)
"""Requests that a peer may send before it has proved itself."""

BROKER_IDS: Final = range(2**31)
"""Ids that a peer on the brokers' listener may claim if no certificate says who it is: the
cluster's secret is the same for all brokers."""
NO_BROKER_IDS: Final = range(0)
"""The same on other listeners."""

_LISTENER_LABEL: Final = b"fairlead internal 1 listener"
_CALLER_LABEL: Final = b"fairlead internal 1 caller"


class PeerProofError(Exception):
    """The other side does not know the cluster's secret, or does not keep to the exchange."""


class PeerCheck:
    """The listener's side, one per connection. `is_passed` never goes back."""

    __slots__ = ("_expected", "_has_mechanism", "_secret", "is_passed")

    def __init__(self, secret: bytes) -> None:
        """With an empty secret no peer passes."""
        self.is_passed = False
        self._secret = secret
        self._has_mechanism = False
        self._expected: bytes | None = None

    def choose(self, mechanism: str) -> bool:
        """Take the mechanism that the peer names; return whether it is ours."""
        self._has_mechanism = mechanism == MECHANISM
        self._expected = None
        return self._has_mechanism

    def receive(self, token: bytes) -> bytes:
        """Take the peer's next token; return the answer. PeerProofError: close the connection."""
        if not self._has_mechanism or not self._secret or self.is_passed:
            raise PeerProofError("no proof is expected now")
        expected = self._expected
        if expected is None:
            if len(token) != NONCE_SIZE:
                raise PeerProofError(f"a nonce of {len(token)} bytes")
            nonce = secrets.token_bytes(NONCE_SIZE)
            self._expected = _proof(self._secret, _CALLER_LABEL, token, nonce)
            return nonce + _proof(self._secret, _LISTENER_LABEL, token, nonce)
        # One try: the next one needs new nonces.
        self._expected = None
        self._has_mechanism = False
        if not compare_digest(expected, token):
            raise PeerProofError("the peer does not know the cluster's secret")
        self.is_passed = True
        return b""


class PeerProof:
    """The caller's side: send `nonce`, give the answer to `answer`, send what that returns."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.nonce = secrets.token_bytes(NONCE_SIZE)

    def answer(self, token: bytes) -> bytes:
        """Check the listener's proof and return ours. PeerProofError if its proof is wrong."""
        if len(token) != NONCE_SIZE + PROOF_SIZE:
            raise PeerProofError(f"an answer of {len(token)} bytes")
        theirs, proof = token[:NONCE_SIZE], token[NONCE_SIZE:]
        if not compare_digest(_proof(self._secret, _LISTENER_LABEL, self.nonce, theirs), proof):
            raise PeerProofError("the listener does not know the cluster's secret")
        return _proof(self._secret, _CALLER_LABEL, self.nonce, theirs)


def _proof(secret: bytes, label: bytes, caller_nonce: bytes, listener_nonce: bytes) -> bytes:
    return digest(secret, label + caller_nonce + listener_nonce, sha256)
