"""Log lines that a peer can cause, at a bounded rate.

A broken or hostile client repeats itself thousands of times a second; a line for each would cost
more than the request. Each kind of line has its own allowance in a window; what was left out is
counted and said when the window ends.
"""

from __future__ import annotations

import logging
from typing import Final

from fairlead_broker.limits import PEER_LOG_LINES_PER_WINDOW, PEER_LOG_WINDOW_S

_LOGGER: Final = logging.getLogger("fairlead_broker.net")


class PeerLog:
    """Lines by kind; `tick` is called once a second by the server's sweep."""

    __slots__ = ("_counts", "_seconds")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._seconds = 0

    def warn(self, kind: str, message: str, *arguments: object, trace: bool = False) -> None:
        """Log `message`, unless too many of this `kind` were logged in this window."""
        count = self._counts.get(kind, 0) + 1
        self._counts[kind] = count
        if count <= PEER_LOG_LINES_PER_WINDOW:
            _LOGGER.warning(message, *arguments, exc_info=trace)

    def tick(self) -> None:
        """Let a second pass."""
        self._seconds += 1
        if self._seconds < PEER_LOG_WINDOW_S:
            return
        self._seconds = 0
        for kind, count in self._counts.items():
            if count > PEER_LOG_LINES_PER_WINDOW:
                _LOGGER.warning(
                    "%s: %d more such lines were left out", kind, count - PEER_LOG_LINES_PER_WINDOW
                )
        self._counts.clear()
