"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677).

    client                                    server
    n,,n=user,r=nonce                  ──▶
                                       ◀──    r=nonce+ours,s=salt,i=iterations
    c=biws,r=nonce+ours,p=proof        ──▶
                                       ◀──    v=signature

An unknown user gets the same kind of answer as a known one, with a salt that is the same each time
for that name and looks like those of known users, and is refused at the same step as a wrong
password. The signature covers the bytes as they came, and the whole nonce is compared
(CVE-2024-56128).
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Final

from fairlead_broker.security.sasl.exchange import (
    USER_NAME_LENGTH_MAX,
    Answer,
    Login,
    LoginError,
    check_user,
)
from fairlead_broker.security.sasl.salt_looks import fake_salt
from fairlead_model.security.scram import MIN_ITERATIONS, ScramCredential

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairlead_broker.security.sasl.salt_looks import SaltLook
    from fairlead_model.security.scram import ScramMechanism

NONCE_BYTES: Final = 24
_CLIENT_NONCE_LENGTH_MAX: Final = 256
_NAME_BYTES_MAX: Final = 4 * USER_NAME_LENGTH_MAX
"""A character takes four bytes at most, and an escape three."""


def no_looks(mechanism: ScramMechanism) -> Mapping[SaltLook, int]:
    """Return the looks of credentials where there are none."""
    return {}


class ScramExchange:
    """One login. `nonce` is the broker's, fresh, in printable ASCII without commas."""

    __slots__ = (
        "_credential",
        "_expected",
        "_find",
        "_looks",
        "_mechanism",
        "_nonce",
        "_secret",
        "_signed",
        "_user",
    )

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[ScramMechanism, str], ScramCredential | None],
        *,
        nonce: str,
        secret: bytes,
        looks: Callable[[ScramMechanism], Mapping[SaltLook, int]] = no_looks,
    ) -> None:
        """`secret` is known to all brokers and to no client."""
        self._mechanism = mechanism
        self._find = find
        self._looks = looks
        self._nonce = nonce
        self._secret = secret
        self._user = ""
        self._credential: ScramCredential | None = None
        self._expected: tuple[bytes, tuple[bytes, ...]] | None = None
        self._signed = b""

    def receive(self, token: bytes) -> Answer:
        """Take the client's first message, then its last."""
        return self._first(token) if self._expected is None else self._last(token, self._expected)

    def _first(self, token: bytes) -> Answer:
        binding, authorization, bare = _split_header(token)
        name, _, rest = bare.partition(b",")
        nonce, _, extensions = rest.partition(b",")
        if not name.startswith(b"n=") or not nonce.startswith(b"r="):
            raise LoginError("a first message without name and nonce")
        if b",tokenauth=" in b"," + extensions.lower():
            raise LoginError("a delegation token")
        client_nonce = nonce[2:]
        is_printable = all(0x21 <= byte <= 0x7E for byte in client_nonce)
        if not 0 < len(client_nonce) <= _CLIENT_NONCE_LENGTH_MAX or not is_printable:
            raise LoginError("a nonce that is none")
        self._user = check_user(_unescape(name[2:]))
        if authorization and _unescape(authorization) != self._user:
            raise LoginError("it wants to act for somebody else")
        found = self._find(self._mechanism, self._user)
        if found is not None and found.iterations < MIN_ITERATIONS:
            raise LoginError(f"a credential of {found.iterations} iterations is too weak")
        self._credential = found
        shown = found or self._fake()
        whole = client_nonce + self._nonce.encode()
        answer = b"r=%b,s=%b,i=%d" % (whole, b64encode(shown.salt), shown.iterations)
        # librdkafka before 2.6.1 repeats its own nonce before the whole nonce.
        self._expected = (b64encode(binding), (whole, client_nonce + whole))
        self._signed = bare + b"," + answer + b","
        return Answer(answer)

    def _last(self, token: bytes, expected: tuple[bytes, tuple[bytes, ...]]) -> Answer:
        without_proof, separator, proof_text = token.rpartition(b",p=")
        fields = without_proof.split(b",")
        if not separator or len(fields) < 2:
            raise LoginError("a last message without proof")
        binding, nonces = expected
        if fields[0] != b"c=" + binding or fields[1] not in [b"r=" + each for each in nonces]:
            raise LoginError("a last message that belongs to another exchange")
        try:
            proof = b64decode(proof_text, validate=True)
        except Base64Error:
            raise LoginError("a proof that is no base64") from None
        credential = self._credential or self._fake()
        is_right = _is_proof(credential, self._signed + without_proof, proof)
        if self._credential is None or not is_right:
            raise LoginError(f"wrong password, or no such user: {self._user!a}")
        # The credential may have changed during the exchange.
        if self._find(self._mechanism, self._user) != credential:
            raise LoginError("the credential changed meanwhile")
        signature = hmac.digest(
            credential.server_key, self._signed + without_proof, self._mechanism.hash_name
        )
        login = Login(self._user, verified_by=self._mechanism)
        return Answer(b"v=" + b64encode(signature), login)

    def _fake(self) -> ScramCredential:
        return fake_credential(
            self._mechanism, self._user, self._secret, self._looks(self._mechanism)
        )


def fake_credential(
    mechanism: ScramMechanism, user: str, secret: bytes, looks: Mapping[SaltLook, int]
) -> ScramCredential:
    """Return a fake credential for an unknown user, the same each time on each broker (R32).

    It looks like one of those that users have.
    """
    salt, iterations = fake_salt(mechanism, user, secret, looks)
    key = bytes(mechanism.key_bytes)
    return ScramCredential(mechanism, iterations, salt, stored_key=key, server_key=key)


def _is_proof(credential: ScramCredential, signed: bytes, proof: bytes) -> bool:
    """Tell whether a proof shows that the client knows the password (RFC 5802, section 3)."""
    name = credential.mechanism.hash_name
    mask = hmac.digest(credential.stored_key, signed, name)
    if len(proof) != len(mask):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, mask, strict=True))
    return hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)


def _split_header(token: bytes) -> tuple[bytes, bytes, bytes]:
    """Split the first message into its GS2 header as it came, the authorization id, the rest."""
    flag, _, rest = token.partition(b",")
    authorization, separator, bare = rest.partition(b",")
    if flag not in (b"n", b"y") or not separator:
        raise LoginError("a first message with channel binding, or none at all")
    if authorization and not authorization.startswith(b"a="):
        raise LoginError("a header that cannot be read")
    if bare.startswith(b"m="):
        raise LoginError("an extension that has to be understood and is not")
    return token[: len(token) - len(bare)], authorization[2:], bare


def _unescape(name: bytes) -> str:
    """Read a saslname: `=2C` and `=3D` are its only escapes."""
    if len(name) > _NAME_BYTES_MAX:
        raise LoginError(f"a name of {len(name)} bytes")
    pieces = name.split(b"=")
    for piece in pieces[1:]:
        if not piece.startswith((b"2C", b"3D")):
            raise LoginError("a name with an escape that is none")
    text = pieces[0] + b"".join(
        (b"," if piece.startswith(b"2C") else b"=") + piece[2:] for piece in pieces[1:]
    )
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise LoginError("a name that is not UTF-8") from None
