"""Whether a JSON Web Token is valid: its signature, its issuer, its audience, its times.

The key decides the algorithm, never the token (CVE-2022-29217). Of a token's header only the key id
is used to find the key. A token without one (RFC 7515, section 4.1.4) is held against the first key
of the set that is meant for its algorithm, as in Kafka. Issuer and audience have to be those of the
settings.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from fairlead_broker.limits import TOKEN_KEY_ID_LENGTH_MAX, TOKEN_LIFE_S_MAX
from fairlead_broker.security.sasl.exchange import Login, LoginError, check_user
from fairlead_broker.security.sasl.oauthbearer import TokenError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_broker.security.sasl.sasl_settings import OAuthSettings

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA_BITS_MIN: Final = 2_048
_SHAPE: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)


class TokenKey:
    """A key that tokens are signed with, and its algorithms."""

    __slots__ = ("algorithms", "key")

    def __init__(self, key: Any, algorithms: frozenset[str]) -> None:
        self.key = key
        self.algorithms = algorithms


KeyId: TypeAlias = str | int
"""The id of a key; if it has none, its place in the set, which no token can name."""


def read_keys(document: Any) -> dict[KeyId, TokenKey]:
    """Return the usable keys of a JWK set (RFC 7517) by id; ValueError if it is no set.

    A set without usable keys is one: its issuer has taken back the keys that there were.
    """
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("no set of keys")
    keys: dict[KeyId, TokenKey] = {}
    for place, entry in enumerate(entries):
        found = _read_key(entry) if isinstance(entry, dict) else None
        if found is not None:
            kid = entry.get("kid")
            keys[kid if isinstance(kid, str) else place] = found
    return keys


def _read_key(entry: Mapping[str, Any]) -> TokenKey | None:
    """Return a key for signatures; None if the key is of another kind or for another use."""
    if entry.get("kty") not in ("RSA", "EC", "OKP") or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    algorithm = entry.get("alg")
    kty = entry["kty"]
    default = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[kty]
    try:
        key = jwt.PyJWK(dict(entry), algorithm=default if kty != "EC" else None).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, RuntimeError):
        # PyJWT raises the last for a key of the algorithm `none`.
        return None
    if isinstance(key, RSAPublicKey):
        fitting = _RSA if key.key_size >= _RSA_BITS_MIN else frozenset()
    elif isinstance(key, EllipticCurvePublicKey):
        fitting = frozenset(filter(None, (_CURVES.get(key.curve.name),)))
    elif hasattr(key, "private_bytes"):
        # A private key was published by mistake.
        return None
    else:
        fitting = frozenset({"EdDSA"})
    if algorithm is not None:
        fitting = frozenset(each for each in fitting if each == algorithm)
    return TokenKey(key, fitting) if fitting else None


class TokenKeys(Protocol):
    """The keys that are known now. Used in a thread."""

    @property
    def keys(self) -> Mapping[KeyId, TokenKey]:
        """The keys by their ids, in the order of their set."""
        ...

    def want(self) -> None:
        """Note that a token names an unknown key."""
        ...


class JwtJudge:
    """Verifies tokens with the keys that are known now."""

    def __init__(self, settings: OAuthSettings, keys: TokenKeys) -> None:
        self._settings = settings
        self._keys = keys

    def judge(self, token: str) -> Login:
        """Return the login of a token; TokenError if the token is not valid."""
        key = self._find_key(token)
        settings = self._settings
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=sorted(key.algorithms),
                issuer=settings.issuer,
                audience=list(settings.audiences),
                leeway=settings.clock_skew_s,
                options={"require": ["exp", "iat", "iss", "aud"], "verify_sub": False},
            )
        except jwt.PyJWTError as error:
            raise TokenError(f"{type(error).__name__}: {error}") from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise TokenError("claims that cannot be read") from None
        expires_s = int(claims["exp"])
        if expires_s - int(claims["iat"]) > TOKEN_LIFE_S_MAX:
            raise TokenError(f"it holds for more than {TOKEN_LIFE_S_MAX} s")
        subject = claims.get(settings.sub_claim)
        if not isinstance(subject, str):
            raise TokenError(f"no {settings.sub_claim} in it")
        try:
            user = check_user(subject)
        except LoginError as error:
            raise TokenError(str(error)) from None
        return Login(user, expires_at_ms=expires_s * 1000)

    def _find_key(self, token: str) -> TokenKey:
        if not _SHAPE.fullmatch(token):
            raise TokenError("it is no signed JSON Web Token")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenError("its header cannot be read") from None
        if "crit" in header:
            raise TokenError("its header has what must be understood and is not")
        kid, algorithm = header.get("kid"), str(header.get("alg"))
        keys = self._keys.keys
        if kid is None:
            fitting = (each for each in keys.values() if algorithm in each.algorithms)
            key, problem = next(fitting, None), "it names no key, and none is for its algorithm"
        elif isinstance(kid, str) and len(kid) <= TOKEN_KEY_ID_LENGTH_MAX:
            key, problem = keys.get(kid), f"key {kid[:80]!a} is not known"
        else:
            raise TokenError("it does not say which key has signed it")
        if key is None:
            self._keys.want()
            raise TokenError(problem)
        return key
