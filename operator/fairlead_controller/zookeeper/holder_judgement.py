"""When a candidate that stands by takes over, although the holder's znode is still there. Pure.

ZooKeeper removes an ephemeral znode after the session timeout, four seconds or more on servers with
usual settings. So candidates hear each other: the holder sends a beat to those who stand by. Who is
wrong about it loses only time, because the election moves the fence.

A holder that this process never heard is left to ZooKeeper: it may be that only the way between the
two is broken, and then each would depose the other for ever.
"""

from dataclasses import dataclass
from typing import Final

BEAT_INTERVAL_MS: Final = 200
SILENCE_MS: Final = 1000
"""A holder on an open connection, or on one that is not refused, is silent for so long."""
SLEPT_MS: Final = 500
"""Two looks so far apart mean that this process itself did not run."""


@dataclass(slots=True)
class HolderSight:
    """What was heard of one holder."""

    heard_ms: int | None = None
    """When its last beat came."""
    is_refused: bool = False
    """Whether its port refused a connection since: there is no such process."""
    looked_ms: int | None = None

    def on_beat(self, now_ms: int) -> None:
        """Note a beat."""
        self.heard_ms, self.is_refused = now_ms, False

    def on_refused(self) -> None:
        """Note that nobody listens at its port."""
        self.is_refused = True

    def judge(self, now_ms: int) -> str:
        """Return why it is gone; empty while it may be there."""
        slept = self.looked_ms is not None and now_ms - self.looked_ms > SLEPT_MS
        self.looked_ms = now_ms
        if self.heard_ms is None:
            return ""
        if slept:
            # What it said meanwhile may lie unread in the socket.
            self.heard_ms = now_ms
            return ""
        if self.is_refused:
            return "its port refuses connections"
        if now_ms - self.heard_ms > SILENCE_MS:
            return f"it has been silent for {now_ms - self.heard_ms} ms"
        return ""
