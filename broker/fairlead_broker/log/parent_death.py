"""Ends a child process that works on the broker's files together with the broker.

Otherwise it would go on writing into files that the next broker has opened: a recovery that began
before a kill would cut off what was appended after it.
"""

import ctypes
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. This works on Linux only.

    On other systems a process ends when its input ends. The parent is the *thread* that started
    this process: it has to live as long as this process.
    """
    parent = os.getppid()
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(0)
