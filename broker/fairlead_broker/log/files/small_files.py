"""Reading the small files of a data directory, of which none that is ours is large.

Beside `text_files`, which says what they hold.
"""

from fairlead_broker.disk import Disk, read_file
from fairlead_broker.limits import SMALL_FILE_BYTES_MAX
from fairlead_broker.log.files.text_files import CorruptFileError


def read_small_file(disk: Disk, path: str) -> bytes:
    """Return what a small file holds. FileNotFoundError, or another OSError.

    CorruptFileError for one that is larger than any of ours: it is damaged, as one whose content
    makes no sense.
    """
    try:
        return read_file(disk, path, size_max=SMALL_FILE_BYTES_MAX)
    except ValueError as error:
        raise CorruptFileError(str(error)) from error
