"""The state of a log's flushes; see `flush`."""

from typing import Final

AWAITS_CHECKPOINT: Final = "truncated, and that is not durable yet"
"""Why a truncated log refuses appends; a checkpoint ends this."""


class FlushState:
    """The state of a log's flushes; only the event loop changes it."""

    __slots__ = (
        "failed_flush",
        "generation",
        "is_held",
        "is_running",
        "is_wanted",
        "last_flush_ms",
        "write_out_base",
        "write_out_position",
    )

    def __init__(self) -> None:
        self.generation = 0
        self.is_held = False
        """No flush may begin, because the log is about to move to another directory."""
        self.is_running = False
        self.is_wanted = False
        self.last_flush_ms = 0
        self.failed_flush: OSError | None = None
        self.write_out_base = -1
        self.write_out_position = 0

    def forget_flushes(self) -> None:
        """Ignore the results of running jobs: after a truncation they prove nothing any more."""
        self.generation += 1
        self.write_out_base = -1
