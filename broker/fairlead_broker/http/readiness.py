"""How far a starting (or stopping) broker is, for probes and for people.

Written by `main`, read by the HTTP handlers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """What the process is busy with."""

    LOADING = "loading"
    """Opening logs; after a crash, scanning them."""
    REGISTERING = "registering"
    """Waiting for a controller and its image."""
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(slots=True)
class Readiness:
    """`progress` says more about the phase: logs and bytes that remain."""

    phase: Phase = Phase.LOADING
    progress: dict[str, Any] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.SERVING

    def describe(self) -> dict[str, Any]:
        return {"state": self.phase.value, **self.progress}
