"""What the mechanisms have in common: tokens in, answers out, a login at the end.

An exchange is pure. What takes long it hands back as `Work`, which belongs into a thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_model.security.scram import ScramMechanism

USER_NAME_LENGTH_MAX: Final = 1_024


class LoginError(Exception):
    """A login that is refused. The text is for the log: clients hear one sentence for all."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who has logged in."""

    user: str
    verified_by: ScramMechanism | None = None
    """The credential that was looked at: when that changes, the login has to be repeated."""
    expires_at_ms: int | None = None
    """When, by the wall clock, what was shown is worth nothing any more."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client is told; with a login the exchange is over."""

    token: bytes
    login: Login | None = None
    is_refusal: bool = False
    """The login has failed already; the client is to say that it knows before it ends."""


def _confirm_nothing() -> None:
    """Leave an answer as it is."""


@dataclass(frozen=True, slots=True)
class Work:
    """Computes an answer, or raises LoginError. For a thread."""

    run: Callable[[], Answer]
    confirm: Callable[[], None] = _confirm_nothing
    """Asked on the loop before the answer counts: LoginError if what it rests on has changed."""


Step: TypeAlias = "Answer | Work"


class Exchange(Protocol):
    """One login by one mechanism."""

    def receive(self, token: bytes) -> Step:
        """Take the client's next token. LoginError: the login is over."""
        ...


def check_user(user: str) -> str:
    """Return a name that somebody may have; LoginError for one that would mean something else."""
    if not user or user == "*" or len(user) > USER_NAME_LENGTH_MAX or not user.isprintable():
        raise LoginError("a name that nobody can have")
    return user
