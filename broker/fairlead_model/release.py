"""The release of Fairlead that this process runs."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _read() -> str:
    try:
        return version("fairlead")
    except PackageNotFoundError:
        return "0"


RELEASE: Final = _read()
