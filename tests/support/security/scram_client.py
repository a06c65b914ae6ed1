"""The client's side of SCRAM for tests, which may change each message."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from functools import cache

from fairlead_model.security.scram import ScramMechanism

# Each takes milliseconds, and tests need the same ones many times.
derive = cache(hashlib.pbkdf2_hmac)


class ScramClient:
    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        *,
        nonce: str = "fyko+d2lbbFgONRv9qkxdawL",
        header: str = "n,,",
    ) -> None:
        self._hash = mechanism.hash_name
        self._password = password
        self._header = header
        name = user.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={name},r={nonce}"
        self.signature = b""
        self.salted = b""

    @property
    def first(self) -> bytes:
        return f"{self._header}{self.bare}".encode()

    def last(self, challenge: bytes, *, nonce: bytes | None = None) -> bytes:
        fields = dict(part.split(b"=", 1) for part in challenge.split(b","))
        salt, iterations = b64decode(fields[b"s"]), int(fields[b"i"])
        self.salted = derive(self._hash, self._password.encode(), salt, iterations)
        without_proof = b"c=%b,r=%b" % (b64encode(self._header.encode()), nonce or fields[b"r"])
        signed = b",".join((self.bare.encode(), challenge, without_proof))
        client_key = hmac.digest(self.salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        mask = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, mask, strict=True))
        server_key = hmac.digest(self.salted, b"Server Key", self._hash)
        self.signature = b"v=" + b64encode(hmac.digest(server_key, signed, self._hash))
        return without_proof + b",p=" + b64encode(proof)
