"""Signed tokens for tests, and the keys that verify them."""

import base64
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER = "https://issuer.example/realm"
AUDIENCE = "kafka"


class TokenIssuer:
    """Signs with RS256 and the key `k1`; the key set has more keys."""

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())

    def document(self) -> dict[str, Any]:
        rsa_jwk = jwt.algorithms.RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True)
        ec_jwk = jwt.algorithms.ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True)
        return {
            "keys": [
                {**rsa_jwk, "kid": "k1", "use": "sig", "alg": "RS256"},
                {**ec_jwk, "kid": "k2"},
                {**rsa_jwk, "kid": "enc", "use": "enc"},
                {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
                "nonsense",
            ]
        }

    def write(self, path: Path) -> str:
        """Write the key set to a file; return its URL."""
        path.write_text(json.dumps(self.document()))
        return path.as_uri()

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600}
        claims |= changes
        return {name: value for name, value in claims.items() if value is not None}

    def sign(
        self, *, algorithm: str = "RS256", kid: str | None = "k1", key: Any = None, **changes: Any
    ) -> str:
        headers = {"kid": kid} if kid is not None else {}
        headers |= changes.pop("headers", {})
        if key is None:
            key = self.ec if algorithm.startswith("ES") else self.rsa
        return jwt.encode(self.claims(**changes), key, algorithm=algorithm, headers=headers)


def unsigned(claims: dict[str, Any], *, kid: str | None = "k1") -> str:
    """Return a token without signature, with the algorithm `none`."""
    return f"{_header('none', kid)}.{_part(claims)}."


def signed_with_public_key(
    key: bytes, claims: dict[str, Any], *, kid: str | None = "k1", algorithm: Any = "HS256"
) -> str:
    """Return a token signed with HS256 and a public key as the shared secret."""
    signed = f"{_header(algorithm, kid)}.{_part(claims)}"
    return f"{signed}.{_encode(hmac.digest(key, signed.encode(), 'sha256'))}"


def _header(algorithm: Any, kid: str | None) -> str:
    return _part({"alg": algorithm} if kid is None else {"alg": algorithm, "kid": kid})


def _part(part: dict[str, Any]) -> str:
    return _encode(json.dumps(part).encode())


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def oauth_settings(url: str) -> dict[str, str]:
    return {
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
    }
