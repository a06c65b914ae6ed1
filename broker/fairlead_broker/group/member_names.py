"""What ids and names of a member take in memory."""

from __future__ import annotations

from fairlead_broker.limits import MEMBER_NAMES_LENGTH


def names_bytes(*names: str | None) -> int:
    """Return what ids and names of a member take beyond what every member is taken to have.

    Each may be 32 KiB long.
    """
    return max(0, sum(len(name) for name in names if name) - MEMBER_NAMES_LENGTH)
