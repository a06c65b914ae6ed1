"""Regular expressions that clients send, in RE2's syntax as in Kafka.

With RE2 the time grows with the length of the text, whatever the expression is. Python's `re`
backtracks, and a client could keep it busy for hours. An expression has to match the whole text.
Compiled expressions are few and small: RE2 keeps 128 of them. The library is loaded for the first
expression, because most brokers never get one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import re2

    class Pattern:
        """A compiled expression."""

        def fullmatch(self, text: str) -> object | None: ...


_SHOWN_LENGTH_MAX: Final = 200


@lru_cache(maxsize=8)
def _options(bytes_max: int) -> re2.Options:
    import re2

    options = re2.Options()
    options.max_mem = bytes_max
    options.log_errors = False
    # What groups match is not used, and without them RE2 needs no second, slower pass.
    options.never_capture = True
    return options


def compile_pattern(pattern: str, *, length_max: int, bytes_max: int) -> Pattern:
    """Return the compiled expression, which takes at most `bytes_max`.

    KafkaError INVALID_REGULAR_EXPRESSION with the reason.
    """
    import re2

    if len(pattern) > length_max:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"the regular expression has {len(pattern)} characters, {length_max} fit",
        )
    try:
        compiled: Pattern = re2.compile(pattern, _options(bytes_max))
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{pattern[:_SHOWN_LENGTH_MAX]!r} is not a regular expression of RE2: "
            f"{text[:_SHOWN_LENGTH_MAX]}",
        ) from None
    return compiled
