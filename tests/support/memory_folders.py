"""Folders in memory, for histories that fsync thousands of times and look at files alone.

What a disk keeps when it loses power is asked elsewhere (tests/crash/test_power_loss.py).
"""

import os
import tempfile
from typing import Final

SHARED_MEMORY: Final = "/dev/shm"


def make_memory_folder() -> "tempfile.TemporaryDirectory[str]":
    """Make a folder that is removed with its `cleanup`; on a disk where memory has no files."""
    is_there = os.access(SHARED_MEMORY, os.W_OK | os.X_OK)
    return tempfile.TemporaryDirectory(dir=SHARED_MEMORY if is_there else None)
