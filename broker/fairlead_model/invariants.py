"""Conditions that stay on in production.

`require` is for what must hold whatever a client, a peer or a disk does. A violation is a fault of
this program, so it is no `KafkaError`. Whoever owns the state catches it, and nobody else: a broker
takes the partition offline, the controller stops the one decision, and a group coordinator does not
write the one record. None of them serves or stores what is wrong.
"""

from typing import NoReturn


class InvariantViolation(Exception):  # noqa: N818 (a violation, not an error of the caller)
    """A state that the design rules out was observed; the owner must stop."""


def require(condition: bool, claim: str, *values: object) -> None:
    """Raise InvariantViolation with `claim.format(*values)` unless the condition holds."""
    if not condition:
        violated(claim, *values)


def violated(claim: str, *values: object) -> NoReturn:
    """Raise InvariantViolation. Hot paths test with a plain `if` and pay for this call alone."""
    raise InvariantViolation(claim.format(*values))
