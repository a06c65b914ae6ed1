"""Programs that a release is made with, each told what to do if it is missing."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

WHERE_FROM: Final = {
    "helm": "https://helm.sh/docs/intro/install",
    "kubectl": "https://kubernetes.io/docs/tasks/tools",
}


class CommandError(RuntimeError):
    """A program is missing, or says that something is wrong."""


def run(
    arguments: Sequence[str | Path],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    text: str | None = None,
) -> str:
    """Return what a program prints; CommandError has its last words."""
    command = [str(argument) for argument in arguments]
    path = None if environment is None else environment.get("PATH")
    if shutil.which(command[0], path=path) is None:
        place = WHERE_FROM.get(command[0])
        raise CommandError(f"{command[0]} is not installed" + (f": {place}" if place else ""))
    done = subprocess.run(
        command,
        cwd=folder,
        env=None if environment is None else dict(environment),
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise CommandError(f"{' '.join(command[:6])} … ended with {done.returncode}: {words}")
    return done.stdout
