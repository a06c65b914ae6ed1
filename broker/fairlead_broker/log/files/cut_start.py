"""Whether a log may lack its beginning: a file in its directory says where it began.

A power loss may take the names of a log's first segments and keep later ones. The first start
after it can detect this from the checkpoints and the boot id. The next start, of the same boot,
cannot. So the first start notes it before it registers, and the note stays until the log has
durably restarted at another offset (I4).
"""

from fairlead_broker.disk import Disk, replace_file, unlink_if_present
from fairlead_broker.log.files.file_names import CUT_START
from fairlead_broker.log.files.small_files import read_small_file
from fairlead_broker.log.files.text_files import CorruptFileError, decode_offset


def note_cut_start(disk: Disk, directory: str, known_start: int) -> None:
    """Note where the log began according to the checkpoints; durable at once. OSError."""
    replace_file(disk, f"{directory}/{CUT_START}", encode_cut_start(known_start), durable=True)


def encode_cut_start(known_start: int) -> bytes:
    """Return the content of the file."""
    return f"{known_start}\n".encode()


def read_cut_start(disk: Disk, directory: str) -> int | None:
    """Return the noted offset; None if there is none. OSError.

    Return 0 if the file is damaged: a follower can always begin there.
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
