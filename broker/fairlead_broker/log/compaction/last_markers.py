"""Which markers are the only place in the log with a producer's epoch. Pure.

If the last batch of a producer is remembered, that batch has its epoch. Other producers have ended
their last transaction in a newer epoch, or write without sequences as group coordinators do. Their
newest marker stays as long as they are active: without it a zombie with an older epoch could write
after a restart (Kafka's `LastRecord`, which keeps every marker of that epoch).
"""

from collections.abc import Mapping

from fairlead_wire.record_batch import BatchHeader


class LastMarkers:
    """`epochs` are those of active producers without a remembered batch, by producer id.

    The epoch of `unsettled` producers (`producer_traces`) may be truncated, so markers of any
    epoch count for them.
    """

    __slots__ = ("_epochs", "_newest", "_unsettled")

    def __init__(self, epochs: Mapping[int, int], unsettled: frozenset[int] = frozenset()) -> None:
        self._epochs = epochs
        self._unsettled = unsettled
        self._newest: dict[int, int] = {}

    def note(self, header: BatchHeader) -> None:
        """Note a control batch of the dirty part; the caller passes them in order of offsets."""
        if self._counts(header):
            self._newest[header.producer_id] = header.base_offset

    def has(self, header: BatchHeader) -> bool:
        """Tell whether a control batch may be the last one with its producer's epoch.

        If a producer has no marker in the dirty part, all of its markers in the clean part may be.
        """
        if not self._counts(header):
            return False
        return header.base_offset >= self._newest.get(header.producer_id, 0)

    def _counts(self, header: BatchHeader) -> bool:
        producer_id = header.producer_id
        is_of_its_epoch = self._epochs.get(producer_id) == header.producer_epoch
        return is_of_its_epoch or producer_id in self._unsettled
