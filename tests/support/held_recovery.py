"""Recovery processes that begin their work when a test lets them.

How long a recovery takes is the machine's affair: whoever wants to see one must not have to be
quicker. The processes are Python's own, and run what lies in PYTHONPATH under this name first.
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
    """From its making on, of all processes that the test starts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self._hold = folder / "hold"
        self._hold.touch()
        site = SITE.format(program=PROGRAM, hold=str(self._hold))
        (folder / "sitecustomize.py").write_text(site)
        monkeypatch.setenv("PYTHONPATH", str(folder))

    def let_go(self) -> None:
        self._hold.unlink()
