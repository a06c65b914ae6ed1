"""Images and deltas as messages, each encoded once for all brokers; new deltas are kept a while.

Positions are [controller epoch, sequence]; see `fairlead_model.session.session_protocol`.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from fairlead_model.cluster import Change, ClusterImage
from fairlead_model.codec import encode_changes
from fairlead_model.ids import ControllerEpoch
from fairlead_model.session.session_messages import pack_message
from fairlead_model.session.session_protocol import (
    CHANGES_PER_MESSAGE,
    MESSAGE_SIZE_MAX,
    MessageType,
)

DELTA_LOG_BYTES_MAX: Final = 16 << 20
"""Bytes of deltas kept for brokers that come back; a broker that missed more gets the image."""


class DeltaLog:
    """The newest deltas of one reign."""

    def __init__(self, controller_epoch: ControllerEpoch) -> None:
        self.controller_epoch = controller_epoch
        self.sequence = 0
        """Number of the newest delta; the image at the start of the reign has 0."""
        self._deltas: deque[tuple[int, list[bytes], int]] = deque()
        self._size = 0

    def append(self, changes: tuple[Change, ...]) -> list[bytes]:
        """Add a delta under the next number; return its messages."""
        self.sequence += 1
        messages = list(
            _messages(iter(changes), self.controller_epoch, self.sequence, is_image=False)
        )
        size = sum(map(len, messages))
        self._deltas.append((self.sequence, messages, size))
        self._size += size
        while self._size > DELTA_LOG_BYTES_MAX:
            self._size -= self._deltas.popleft()[2]
        return messages

    def since(self, controller_epoch: ControllerEpoch, sequence: int) -> list[bytes] | None:
        """Return the messages after a position; None if some of them are no longer kept."""
        if controller_epoch != self.controller_epoch or sequence > self.sequence:
            return None
        first_kept = self._deltas[0][0] if self._deltas else self.sequence + 1
        if sequence + 1 < first_kept:
            return None
        return [
            message
            for number, messages, _ in self._deltas
            if number > sequence
            for message in messages
        ]

    def image_messages(self, image: ClusterImage) -> Iterator[bytes]:
        """Encode an image at the present position, one message at a time as the caller takes it."""
        changes = image.changes_from_nothing()
        return _messages(changes, self.controller_epoch, self.sequence, is_image=True)


def _messages(
    changes: Iterator[Change], controller_epoch: int, sequence: int, *, is_image: bool
) -> Iterator[bytes]:
    part = list(islice(changes, CHANGES_PER_MESSAGE))
    while True:
        following = list(islice(changes, CHANGES_PER_MESSAGE))
        yield from _fitting(
            part, [controller_epoch, sequence], is_image=is_image, is_last=not following
        )
        if not following:
            return
        part = following


def _fitting(
    part: list[Change], position: list[int], *, is_image: bool, is_last: bool
) -> Iterator[bytes]:
    """Yield changes in one message, or in several if one would be too large for a broker."""
    message = pack_message(
        MessageType.CHANGES,
        position=position,
        changes=encode_changes(part),
        is_image=is_image,
        is_last=is_last,
    )
    if len(message) <= MESSAGE_SIZE_MAX or len(part) == 1:
        yield message
        return
    middle = len(part) // 2
    yield from _fitting(part[:middle], position, is_image=is_image, is_last=False)
    yield from _fitting(part[middle:], position, is_image=is_image, is_last=is_last)
