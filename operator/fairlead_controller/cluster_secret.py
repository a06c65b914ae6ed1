"""The file with the secret that brokers and controllers of a cluster share."""

import os
from pathlib import Path

from fairlead_model.session.session_protocol import take_secret


def read_secret_file(path: Path) -> bytes:
    """Return the secret; OSError, or ValueError if it is too short or others may read it."""
    with path.open("rb") as file:
        try:
            return take_secret(file.read(), os.fstat(file.fileno()).st_mode)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
