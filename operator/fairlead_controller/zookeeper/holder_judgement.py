"""When a standby takes over although the holder's znode still exists. Pure.

ZooKeeper removes an ephemeral znode after the session timeout, which is four seconds or more with
usual settings. So candidates hear each other: the holder sends beats to the standbys. A wrong
judgement costs only time, because the election changes the fence.

A holder that this process never heard is left to ZooKeeper: perhaps only the network between the
two is broken, and then each would depose the other for ever.
"""

from dataclasses import dataclass
from typing import Final

BEAT_INTERVAL_MS: Final = 200
SILENCE_MS: Final = 1000
"""A holder on an open connection, or whose port does not refuse, counts as silent after so long."""
SLEPT_MS: Final = 500
"""If two checks are so far apart, this process itself did not run in between."""


@dataclass(slots=True)
class HolderSight:
    """What was heard from one holder."""

    heard_ms: int | None = None
    """When its last beat arrived."""
    is_refused: bool = False
    """Whether its port has refused a connection since: the process no longer exists."""
    looked_ms: int | None = None

    def on_beat(self, now_ms: int) -> None:
        """Note a beat."""
        self.heard_ms, self.is_refused = now_ms, False

    def on_refused(self) -> None:
        """Note that no process listens at its port."""
        self.is_refused = True

    def judge(self, now_ms: int) -> str:
        """Return why the holder counts as gone; empty while it may still run."""
        slept = self.looked_ms is not None and now_ms - self.looked_ms > SLEPT_MS
        self.looked_ms = now_ms
        if self.heard_ms is None:
            return ""
        if slept:
            # Messages that arrived meanwhile may be unread in the socket.
            self.heard_ms = now_ms
            return ""
        if self.is_refused:
            return "its port refuses connections"
        if now_ms - self.heard_ms > SILENCE_MS:
            return f"it has been silent for {now_ms - self.heard_ms} ms"
        return ""
