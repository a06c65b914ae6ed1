"""What make gives to the processes that it starts."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_compiled_modules_are_kept_whatever_the_environment_says() -> None:
    """Without them every broker of every test compiles all of Fairlead when it starts."""
    rule = 'show: ; @echo "[$$PYTHONDONTWRITEBYTECODE]"'
    done = subprocess.run(
        ["make", "--no-print-directory", "--eval", rule, "show"],
        cwd=ROOT,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
