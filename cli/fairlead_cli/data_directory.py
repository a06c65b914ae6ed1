"""Where a local cluster is if nobody says where: in the folder that the command runs in."""

from pathlib import Path
from typing import Final

DATA_DEFAULT: Final = Path(".fairlead")
