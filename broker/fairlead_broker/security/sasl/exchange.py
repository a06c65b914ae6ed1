"""The common part of all mechanisms: an exchange takes tokens, gives answers, ends with a login.

An exchange is pure. It returns computations that take long as `Work`, which a thread has to run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from fairlead_model.security.user_names import is_user_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_model.security.scram import ScramMechanism

USER_NAME_LENGTH_MAX: Final = 1_024


class LoginError(Exception):
    """A login that is refused. The text is for the log: all clients get the same message."""


@dataclass(frozen=True, slots=True)
class Login:
    """A successful login."""

    user: str
    verified_by: ScramMechanism | None = None
    """Mechanism of the verified credential: if the credential changes, the client logs in again."""
    expires_at_ms: int | None = None
    """When the token expires, on the wall clock."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to the client; with a login the exchange is over."""

    token: bytes
    login: Login | None = None
    is_refusal: bool = False
    """The login has failed; the client has to acknowledge that before the exchange ends."""


def _confirm_nothing() -> None:
    """Accept an answer without a check."""


@dataclass(frozen=True, slots=True)
class Work:
    """A computation of an answer, or of a LoginError, that a thread has to run."""

    run: Callable[[], Answer]
    confirm: Callable[[], None] = _confirm_nothing
    """Called on the loop before the answer is used: LoginError if the credential has changed."""


Step: TypeAlias = "Answer | Work"


class Exchange(Protocol):
    """One login by one mechanism."""

    def receive(self, token: bytes) -> Step:
        """Take the client's next token. LoginError: the login is over."""
        ...


def check_user(user: str) -> str:
    """Return the name of a user; LoginError if no user may have this name."""
    if len(user) > USER_NAME_LENGTH_MAX or not is_user_name(user):
        raise LoginError("a name that nobody can have")
    return user
