"""Whether a log may lack its beginning: a file in its own directory says where that was.

A power cut may take the names of a log's first segments and leave later ones. The first start
after it can tell, by the checkpoints and by the boot; the next one, of the same boot, cannot. So
what the first has found out is noted before it registers, and stays until the log has begun anew,
durably (I4).
"""

from fairlead_broker.disk import Disk, read_file, replace_file, unlink_if_present
from fairlead_broker.limits import SMALL_FILE_BYTES_MAX
from fairlead_broker.log.files.file_names import CUT_START


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
        content = read_file(disk, f"{directory}/{CUT_START}", size_max=SMALL_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    text = content.decode(errors="replace").strip()
    return int(text) if text.isascii() and text.isdigit() else 0


def forget_cut_start(disk: Disk, directory: str) -> None:
    """Remove the note, if there is one. OSError."""
    unlink_if_present(disk, f"{directory}/{CUT_START}")
