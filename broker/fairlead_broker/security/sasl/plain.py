"""PLAIN (RFC 4616), over TLS only: the password itself, compared with a SCRAM credential.

    authorization id NUL user NUL password

Deriving the keys takes milliseconds, so a thread does it. The broker remembers recent derivations
under a key of this process, so many clients of a user that reconnect at once cost one derivation.
An unknown user takes as long as a known one.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import PLAIN_PASSWORD_BYTES_MAX, PLAIN_REMEMBERED_MAX
from fairlead_broker.security.sasl.exchange import Answer, Login, LoginError, Work, check_user
from fairlead_broker.security.sasl.scram import fake_credential, no_looks
from fairlead_model.security.scram import MIN_ITERATIONS, ScramMechanism, derive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairlead_broker.security.sasl.exchange import Step
    from fairlead_broker.security.sasl.salt_looks import SaltLook
    from fairlead_model.security.scram import ScramCredential

_STRONGEST_FIRST: Final = (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256)


class RightPasswords:
    """Passwords that were right a moment ago, by keyed digests, which do not reveal them."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, ScramCredential] = OrderedDict()
        self._lock = threading.Lock()

    def name(self, user: str, password: str) -> bytes:
        """Return the name under which this pair is remembered."""
        return hmac.digest(self._key, f"{len(user)}:{user}{password}".encode(), "sha256")

    def are_known(self, name: bytes, credential: ScramCredential) -> bool:
        """Tell whether this pair was right for exactly this credential."""
        with self._lock:
            if self._known.get(name) != credential:
                return False
            self._known.move_to_end(name)
            return True

    def add(self, name: bytes, credential: ScramCredential) -> None:
        with self._lock:
            self._known[name] = credential
            if len(self._known) > PLAIN_REMEMBERED_MAX:
                self._known.popitem(last=False)


class PlainExchange:
    """One login."""

    __slots__ = ("_find", "_looks", "_right", "_secret")

    def __init__(
        self,
        find: Callable[[ScramMechanism, str], ScramCredential | None],
        right: RightPasswords,
        *,
        secret: bytes,
        looks: Callable[[ScramMechanism], Mapping[SaltLook, int]] = no_looks,
    ) -> None:
        """`secret` is known to all brokers and to no client."""
        self._find = find
        self._looks = looks
        self._right = right
        self._secret = secret

    def receive(self, token: bytes) -> Step:
        """Take the only message."""
        authorization, user, password = _parse(token)
        check_user(user)
        if authorization not in ("", user):
            raise LoginError("it wants to act for somebody else")
        credential = self._find_strongest(user)
        name = self._right.name(user, password)
        if credential is not None and self._right.are_known(name, credential):
            return Answer(b"", Login(user, verified_by=credential.mechanism))
        against = credential or self._fake(user)

        def verify() -> Answer:
            derived = derive(against.mechanism, password, against.iterations, against.salt)
            is_right = hmac.compare_digest(derived.stored_key, against.stored_key)
            if credential is None or not is_right:
                raise LoginError(f"wrong password, or no such user: {user!a}")
            self._right.add(name, credential)
            return Answer(b"", Login(user, verified_by=credential.mechanism))

        def confirm() -> None:
            # The credential may have changed while the password waited for the thread.
            if self._find_strongest(user) != credential:
                raise LoginError("the credential changed meanwhile")

        return Work(verify, confirm)

    def _fake(self, user: str) -> ScramCredential:
        """Return a credential that takes as long as one that a user may have."""
        looks = {each: self._looks(each) for each in _STRONGEST_FIRST}
        mechanism = next((each for each in looks if looks[each]), _STRONGEST_FIRST[0])
        return fake_credential(mechanism, user, self._secret, looks[mechanism])

    def _find_strongest(self, user: str) -> ScramCredential | None:
        for mechanism in _STRONGEST_FIRST:
            found = self._find(mechanism, user)
            if found is not None and found.iterations >= MIN_ITERATIONS:
                return found
        return None


def _parse(token: bytes) -> tuple[str, str, str]:
    parts = token.split(b"\0")
    if len(parts) != 3 or not parts[1] or not parts[2]:
        raise LoginError("a message that is not id, user and password")
    if len(parts[2]) > PLAIN_PASSWORD_BYTES_MAX:
        raise LoginError("a password that nobody has")
    try:
        authorization, user, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise LoginError("a message that is not UTF-8") from None
    return authorization, user, password
