"""Remove from a virtual environment what no process reads when it runs.

Tests, type stubs, C sources, command-line shims of libraries, scripts that make activation
convenient, and descriptions of the services of AWS that nobody calls: together about a third of the
installed size.
"""

import shutil
import sys
from pathlib import Path

FOLDERS = ("tests", "test", "__pycache__", "include")
SUFFIXES = (".pyi", ".pyx", ".pxd", ".c", ".h", ".cpp")
AWS_SERVICES = "botocore/data"
"""A folder a service, beside files about all of them."""
CALLED = ("s3", "signin", "sso", "sso-oidc", "sts")
"""The object store, and those that give credentials for it."""


def main(root: str) -> None:
    """Run `strip.py VENV`."""
    environment = Path(root)
    for packages in environment.glob("lib/python*/site-packages"):
        for name in FOLDERS:
            for folder in sorted(packages.rglob(name)):
                if folder.is_dir():
                    shutil.rmtree(folder)
        for file in sorted(packages.rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                file.unlink()
        for service in sorted(packages.glob(f"{AWS_SERVICES}/*")):
            if service.is_dir() and service.name not in CALLED:
                shutil.rmtree(service)
    for script in (environment / "bin").iterdir():
        if script.is_dir():  # Byte code of scripts that are called `.py`.
            shutil.rmtree(script)
        elif not script.name.startswith("python"):
            script.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
