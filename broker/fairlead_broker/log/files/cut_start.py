"""Whether a log may lack its beginning: a file in its own directory says where that was.

A power cut may take the names of a log's first segments and leave later ones. The first start
after it can tell, by the checkpoints and by the boot; the next one, of the same boot, cannot. So
what the first has found out is noted before it registers, and stays until the log has begun anew,
durably (I4).
"""

from fairlead_broker.disk import Disk, replace_file, unlink_if_present
from fairlead_broker.log.files.file_names import CUT_START
from fairlead_broker.log.files.small_files import read_small_file
from fairlead_broker.log.files.text_files import CorruptFileError, decode_offset


def note_cut_start(disk: Disk, directory: str, known_start: int) -> None:
    """Note where the log began by the checkpoints; durable at once. OSError."""
    replace_file(disk, f"{directory}/{CUT_START}", encode_cut_start(known_start), durable=True)


def encode_cut_start(known_start: int) -> bytes:
    """Return what the file holds."""
    return f"{known_start}\n".encode()


def read_cut_start(disk: Disk, directory: str) -> int | None:
    """Return what is noted; None if nothing is. OSError.

    Zero, from where a follower can always begin, if the file is damaged.
    """
    try:
        return decode_offset(read_small_file(disk, f"{directory}/{CUT_START}"))
    except FileNotFoundError:
        return None
    except CorruptFileError:
        return 0


def forget_cut_start(disk: Disk, directory: str) -> None:
    """Remove the note, if there is one. OSError."""
    unlink_if_present(disk, f"{directory}/{CUT_START}")
