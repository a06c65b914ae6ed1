"""Conditions that stay on in production.

`require` is for what must hold whatever a client, a peer or a disk does. A violation takes the
partition (or the process) down instead of letting it serve wrong data, so it is no `KafkaError`
and nobody but the top of a task or a handler may catch it.
"""

from typing import NoReturn


class InvariantViolation(Exception):  # noqa: N818 (a violation, not an error of the caller)
    """A state that the design rules out was observed; the owner must stop."""


def require(condition: bool, claim: str, *values: object) -> None:
    """Raise InvariantViolation with `claim.format(*values)` unless the condition holds."""
    if not condition:
        violated(claim, *values)


def violated(claim: str, *values: object) -> NoReturn:
    """For hot paths that test with a plain `if` and only pay for the call on failure."""
    raise InvariantViolation(claim.format(*values))
