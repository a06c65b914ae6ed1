"""Reading the small files of a data directory, with a limit of their size.

`text_files` has their formats.
"""

from fairlead_broker.disk import Disk, read_file
from fairlead_broker.limits import SMALL_FILE_BYTES_MAX
from fairlead_broker.log.files.text_files import CorruptFileError


def read_small_file(disk: Disk, path: str) -> bytes:
    """Return the content of a small file. FileNotFoundError, or another OSError.

    CorruptFileError for a file that is too large: it is treated like a damaged one.
    """
    try:
        return read_file(disk, path, size_max=SMALL_FILE_BYTES_MAX)
    except ValueError as error:
        raise CorruptFileError(str(error)) from error
