"""Keeps on disk how far the controller's metadata has come (`DirectoryIdentity.note_metadata`)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from fairlead_broker.log.directory.log_directories import LogDirectories
    from fairlead_model.metadata_seen import MetadataSeen

logger = logging.getLogger(__name__)


class MetadataRecorder:
    """Writes in a thread; nothing while nothing is decided."""

    def __init__(self, directories: LogDirectories, executor: Executor) -> None:
        self._directories = directories
        self._executor = executor
        self._is_failing = False

    async def note(self, seen: MetadataSeen) -> None:
        """Record what was seen. If the disk refuses it, log that once."""
        directories = self._directories
        if seen <= directories.metadata_seen:
            return
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._executor, directories.note_metadata, seen)
        except OSError as error:
            # The next round tries again, in a second, and on a full disk it fails for long.
            if not self._is_failing:
                logger.warning("how far the metadata has come cannot be noted: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False
