"""Whether a remote store can be read and written, as its requests show."""

import logging
import time
from typing import Literal

from fairlead_controller.stores.metadata_store import MetadataStore

logger = logging.getLogger(__name__)

Sort = Literal["read", "write"]


class Availability:
    """What the last requests of a store have shown."""

    def __init__(self) -> None:
        self.problem = ""
        """Why the store is not available; empty while it is."""
        self._failing_since: dict[Sort, float] = {}
        """The sort of requests that fails, with the Unix time of the first failure."""

    @property
    def is_available(self) -> bool:
        """Whether tables can be read and written; if not, metadata is frozen."""
        return not self._failing_since

    @property
    def unavailable_since(self) -> float | None:
        """Unix time of the first failure of requests that still fail; None while available.

        A server whose disk is full still answers reads: only a write that was carried out proves
        that writes succeed again.
        """
        return min(self._failing_since.values(), default=None)

    def note_answer(self, *, is_write: bool = False) -> None:
        """Note that a request was answered; a carried-out write proves reads and writes."""
        since = self.unavailable_since
        if since is None:
            return
        self._failing_since.pop("read", None)
        if is_write:
            self._failing_since.pop("write", None)
        if self.is_available:
            self.problem = ""
            logger.info("the store answers again after %.1f s", time.time() - since)

    def note_failure(self, problem: str, sort: Sort = "read") -> None:
        """Note that a request failed, and why."""
        self.problem = problem
        if self.is_available:
            logger.warning("the store is not available, metadata is frozen: %s", problem)
        self._failing_since.setdefault(sort, time.time())


class RemoteStore(MetadataStore):
    """A store in another process, which may be unavailable."""

    def __init__(self) -> None:
        self._availability = Availability()

    @property
    def is_available(self) -> bool:
        """Whether tables can be read and written; if not, metadata is frozen."""
        return self._availability.is_available

    @property
    def unavailable_since(self) -> float | None:
        """Unix time of the first failure of requests that still fail; None while available."""
        return self._availability.unavailable_since

    @property
    def problem(self) -> str:
        """Why the store is not available; empty while it is."""
        return self._availability.problem
