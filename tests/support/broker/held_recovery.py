"""Recovery processes that begin their work only when a test lets them.

The duration of a recovery depends on the machine, and a test that observes one must not have to be
faster. The processes are Python's own, and first run the file of this name in PYTHONPATH.
"""

from pathlib import Path

import pytest

PROGRAM = "fairlead_broker.log.recovery.worker"
SITE = """
import os, sys, time
while {program!r} in sys.orig_argv and os.path.exists({hold!r}):
    time.sleep(0.01)
"""


class HeldRecovery:
    """Holds all recovery processes that start after its creation."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self._hold = folder / "hold"
        self._hold.touch()
        site = SITE.format(program=PROGRAM, hold=str(self._hold))
        (folder / "sitecustomize.py").write_text(site)
        monkeypatch.setenv("PYTHONPATH", str(folder))

    def let_go(self) -> None:
        self._hold.unlink()
