"""Files that are replaced as a whole, so that a reader never sees a part, even after an error."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

ANYBODY: Final = 0o666
"""As far as the user's umask allows."""
OWNER_ONLY: Final = 0o600


def write_whole(path: Path, text: str, *, mode: int = ANYBODY) -> None:
    """Replace a file as a whole; if that fails, the previous file stays."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
