"""Which names users can have, by whatever mechanism they log in."""

from __future__ import annotations

import unicodedata
from typing import Final

_EVERYBODY: Final = "*"
"""Means all users in access rules."""
_NEVER: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, halves of surrogate pairs, and what ends a line or a paragraph.

Other invisible characters belong to names, such as the ideographic space and joiners.
"""


def is_user_name(name: str) -> bool:
    """Tell whether a user can have this name.

    Kafka takes any name from a token, and of ASCII any character in SCRAM.
    """
    if not name or name == _EVERYBODY:
        return False
    return name.isprintable() or _NEVER.isdisjoint(map(unicodedata.category, name))
