"""Keeps on disk what this process is about to act on, for one that may have to go on (R33).

Each message of the controller that changes the image is written before the broker acts on it, as it
came; so the file never has less than the broker has done. It is written to the page cache and not
fsynced: it is valid only on the same boot. A start removes it before it opens its logs, and puts it
back once the logs are intact: a log that one start finds damaged and repairs, the next may find
intact.

The file holds verifiers of passwords, as the image does: it is its owner's alone.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.disk import unlink_if_present
from fairlead_broker.limits import ROLE_JOURNAL_BYTES_MAX
from fairlead_broker.log.directory.frame_file import FrameFile, read_frames
from fairlead_broker.log.files.file_names import ROLE_JOURNAL, TAKEN_SUFFIX
from fairlead_broker.log.files.text_files import CorruptFileError
from fairlead_broker.session.resumption import (
    BEGIN_JOURNAL,
    BEGIN_SESSION,
    JOURNAL_VERSION,
    Roles,
    replay,
)
from fairlead_model.codec import encode_changes
from fairlead_model.session.session_messages import pack_message
from fairlead_model.session.session_protocol import CHANGES_PER_MESSAGE, MessageType

if TYPE_CHECKING:
    from fairlead_broker.disk import Disk
    from fairlead_broker.session.image_follower import Position
    from fairlead_model.cluster import ClusterImage

logger = logging.getLogger(__name__)

REWRITE_BYTES: Final = 1 << 20
"""A journal that has grown by this, and to four times its first size, is rewritten."""
REWRITTEN_SUFFIX: Final = ".new"


class RoleJournal:
    """The journal of one directory. Nothing here waits for the device."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{ROLE_JOURNAL}"
        self._file: FrameFile | None = None
        self._taken_size = 0
        self._first_size = 0
        self._session: bytes = b""
        """The frame that names the controller in use."""
        self._later: list[bytes] | None = None
        """While the journal is rewritten: the messages since."""

    def take(self) -> list[bytes]:
        """Take away the journal of the process before, unless it is put back later.

        OSError if it cannot be taken.
        """
        taken = self._path + TAKEN_SUFFIX
        unlink_if_present(self._disk, self._path + REWRITTEN_SUFFIX)
        unlink_if_present(self._disk, taken)
        try:
            self._disk.rename(self._path, taken)
            frames, self._taken_size = read_frames(
                self._disk, taken, size_max=ROLE_JOURNAL_BYTES_MAX
            )
        except FileNotFoundError:
            return []
        except CorruptFileError as error:
            logger.warning("what this broker was to do cannot be read: %s", error)
            return []
        return frames

    def put_back(self) -> None:
        """Put back what was taken, and go on with it; OSError if that is impossible."""
        self._disk.rename(self._path + TAKEN_SUFFIX, self._path)
        self._file = FrameFile(self._disk, self._path, size=self._taken_size)
        self._first_size = self._taken_size

    def begin_session(self, cluster_id: str, controller_epoch: int) -> None:
        """Note the controller that tells what follows."""
        self._session = pack_message(
            BEGIN_SESSION, cluster_id=cluster_id, controller_epoch=controller_epoch
        )
        if self._file is None:
            self._begin()
        self._append(self._session)

    def note(self, message: dict[str, Any]) -> None:
        """Note a message that changes the image; OSError if nothing may be acted on any more."""
        if self._file is not None:
            fields = {name: value for name, value in message.items() if name != "type"}
            self._append(pack_message(message["type"], **fields))

    @property
    def is_due(self) -> bool:
        """Whether the journal has grown so much that it should be rewritten."""
        size = 0 if self._file is None else self._file.size
        return size > self._first_size + max(REWRITE_BYTES, 3 * self._first_size)

    async def rewrite(self, image: ClusterImage, position: Position) -> None:
        """Write the image in place of all that led to it, a piece a turn of the loop."""
        later = self._later = []
        path = self._path + REWRITTEN_SUFFIX
        file = None
        try:
            file = FrameFile(self._disk, path)
            for frame in (_first_frame(), self._session):
                file.append(frame)
            changes = image.changes_from_nothing()
            while part := list(islice(changes, CHANGES_PER_MESSAGE)):
                file.append(_image_message(part, position, is_last=False))
                await asyncio.sleep(0)
            file.append(_image_message([], position, is_last=True))
            self._first_size = file.size
            for frame in later:
                file.append(frame)
            if self._file is not None:
                self._disk.rename(path, self._path)
                self._file.close()
                self._file, file = file, None
        except OSError as error:
            # The present one goes on to grow; it is tried again.
            logger.warning("what this broker has to do cannot be written anew: %s", error)
        finally:
            self._later = None
            if file is not None:
                file.close()
                with suppress(OSError):
                    unlink_if_present(self._disk, path)

    def close(self) -> None:
        """Remove the journal: a process that stops in good order leaves its roles."""
        try:
            self._drop()
        except OSError as error:
            # After a clean stop, or if the disk fails, the journal is not used.
            logger.warning("%s stays: %s", self._path, error)

    def _begin(self) -> None:
        try:
            unlink_if_present(self._disk, self._path + TAKEN_SUFFIX)
            self._file = FrameFile(self._disk, self._path)
        except OSError as error:
            logger.warning("what this broker has to do cannot be noted: %s", error)
            return
        self._append(_first_frame())
        self._first_size = 0

    def _append(self, frame: bytes) -> None:
        """Append a frame; without a journal if the disk refuses, but never with an older one."""
        if self._file is None:
            return
        try:
            if self._file.size + len(frame) > ROLE_JOURNAL_BYTES_MAX:
                raise OSError(f"it would have more than {ROLE_JOURNAL_BYTES_MAX} bytes")
            self._file.append(frame)
        except OSError as error:
            logger.warning("what this broker has to do is not noted any more: %s", error)
            self._drop()
            return
        if self._later is not None:
            self._later.append(frame)

    def _drop(self) -> None:
        """Remove the file; OSError if it stays, with less in it than is done."""
        unlink_if_present(self._disk, self._path)
        file, self._file = self._file, None
        if file is not None:
            file.close()


def roles_in(frames: list[bytes]) -> Roles | None:
    """Return the content of the frames; None if there is none."""
    return replay(frames) if frames else None


def _first_frame() -> bytes:
    return pack_message(BEGIN_JOURNAL, version=JOURNAL_VERSION)


def _image_message(changes: list[Any], position: Position, *, is_last: bool) -> bytes:
    return pack_message(
        MessageType.CHANGES,
        position=[position.controller_epoch, position.sequence],
        changes=encode_changes(changes),
        is_image=True,
        is_last=is_last,
    )
