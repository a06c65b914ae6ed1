"""A log whose older records are elsewhere until a test delivers them, as with tiered storage."""

from collections.abc import Callable
from typing import Any

from fairlead_broker.log.log import Log
from fairlead_broker.log.lookup import ReadResult
from fairlead_wire.errors import ErrorCode, KafkaError


class Transfer:
    """Records under way; compared by identity."""

    def __init__(self) -> None:
        self.is_over = False
        self.callbacks: list[Callable[[], None]] = []

    def notify(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)


class DistantRecords:
    """Replaces `read` of a log: records below `end_offset` are not here."""

    def __init__(self, log: Log, end_offset: int) -> None:
        self._read = log.read
        self._end_offset = end_offset
        self._is_lost = False
        self.transfer: Transfer | None = None
        log.read = self  # type: ignore[method-assign]

    def __call__(self, offset: int, max_bytes: int, **options: Any) -> ReadResult:
        if offset >= self._end_offset:
            return self._read(offset, max_bytes, **options)
        if self._is_lost:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the store of the segment is away")
        if self.transfer is None:
            self.transfer = Transfer()
        return ReadResult(None, offset, self.transfer)

    def arrive(self, *, is_lost: bool = False) -> None:
        """Deliver the records, or report that they are lost."""
        transfer, self.transfer = self.transfer, None
        assert transfer is not None
        self._is_lost = is_lost
        self._end_offset = self._end_offset if is_lost else 0
        transfer.is_over = True
        for callback in transfer.callbacks:
            callback()
