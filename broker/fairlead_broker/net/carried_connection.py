"""A connection as its transport sees it: who takes its frames, and whom it tells what it hears.

`Connection` is what stands behind it. It has its transport opened, so that does not know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Container

    from fairlead_broker.authorization import Principal
    from fairlead_broker.listener import Listener


class CarriedConnection(Protocol):
    """Takes frames between `begin_frames` and `end_frames`, and not while it `is_over_limits`."""

    replica_ids: Container[int]
    """The brokers as which the peer may speak; a certificate can name another one."""

    @property
    def listener(self) -> Listener: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def close_reason(self) -> str | None:
        """Why no more of the frames at hand are taken; None while they are."""
        ...

    @property
    def frame_size_max(self) -> int: ...
    def is_over_limits(self) -> bool:
        """Tell whether this peer must wait before any more of its requests are handled."""
        ...

    def begin_frames(self) -> None: ...
    def handle_frame(self, frame: memoryview) -> None:
        """Handle one request; its memory is the caller's again afterwards."""
        ...

    def end_frames(self) -> None: ...
    def on_secure(self, principal: Principal) -> None:
        """Let the peer in, whose certificate is that of `principal`."""
        ...

    def on_warm(self, error: BaseException | None) -> None:
        """Go on sending: what the sender waited for has been read, or could not be."""
        ...

    def flush(self) -> None:
        """Send what the socket takes now, and the rest when it takes more."""
        ...

    def refuse(self, reason: str) -> None:
        """Close because the peer broke the protocol."""
        ...

    def close(self, reason: str = "") -> None:
        """Close, and log the reason if there is one."""
        ...
