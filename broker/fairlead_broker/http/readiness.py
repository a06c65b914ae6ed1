"""The progress of a starting (or stopping) broker, for probes and for people.

`main` writes it, the HTTP handlers read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Phase(StrEnum):
    """What the process is doing."""

    LOADING = "loading"
    """Opening logs; after a crash, scanning them."""
    REGISTERING = "registering"
    """Waiting for a controller and its image."""
    SERVING = "serving"
    STOPPING = "stopping"


@dataclass(slots=True)
class Readiness:
    """`progress` has details of the phase: logs and bytes that remain."""

    phase: Phase = Phase.LOADING
    progress: dict[str, Any] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        return self.phase is Phase.SERVING

    def describe(self) -> dict[str, Any]:
        return {"state": self.phase.value, **self.progress}
