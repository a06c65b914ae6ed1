"""The default folder of a local cluster, in the working directory of the command."""

from pathlib import Path
from typing import Final

DATA_DEFAULT: Final = Path(".fairlead")
