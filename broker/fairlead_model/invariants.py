"""Assertions that stay on in production.

`require` is for conditions that hold whatever a client, a peer or a disk does. A violation is a
defect of this program, so it is not a `KafkaError`. Only the owner of the state catches it: a
broker takes the partition offline, the controller stops that one decision, and a group coordinator
does not write that one record. None of them serves or stores wrong data.
"""

from typing import NoReturn


class InvariantViolation(Exception):  # noqa: N818 (a violation, not an error of the caller)
    """The program is in a state that its design excludes; the owner of the state must stop."""


def require(condition: bool, claim: str, *values: object) -> None:
    """Raise InvariantViolation with `claim.format(*values)` unless the condition holds."""
    if not condition:
        violated(claim, *values)


def violated(claim: str, *values: object) -> NoReturn:
    """Raise InvariantViolation. Hot paths test with a plain `if` and call this only on failure."""
    raise InvariantViolation(claim.format(*values))
