"""Folders in memory, for tests that fsync thousands of times but only check files.

tests/crash/test_power_loss.py tests what a disk keeps after a power cut.
"""

import os
import tempfile
from typing import Final

SHARED_MEMORY: Final = "/dev/shm"


def make_memory_folder() -> "tempfile.TemporaryDirectory[str]":
    """Create a folder that `cleanup` removes; on a disk if there is no file system in memory."""
    is_there = os.access(SHARED_MEMORY, os.W_OK | os.X_OK)
    return tempfile.TemporaryDirectory(dir=SHARED_MEMORY if is_there else None)
