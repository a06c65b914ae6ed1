"""Which markers tell of a producer what nothing else in the log does: its epoch. Pure.

A producer whose last batch is remembered has its epoch there. From the others, whose last
transaction ended in a newer epoch or who write without sequences as group coordinators do, the
newest marker stays as long as they are active: without it a zombie of an older epoch would be let
in after a restart (Kafka's `LastRecord`, which keeps every marker of that epoch).
"""

from collections.abc import Mapping

from fairlead_wire.record_batch import BatchHeader


class LastMarkers:
    """`epochs` are those of active producers of whom no batch is remembered, by producer id.

    Of the `unsettled` ones (`producer_traces`) the epoch may be taken back, so any epoch counts.
    """

    __slots__ = ("_epochs", "_newest", "_unsettled")

    def __init__(self, epochs: Mapping[int, int], unsettled: frozenset[int] = frozenset()) -> None:
        self._epochs = epochs
        self._unsettled = unsettled
        self._newest: dict[int, int] = {}

    def note(self, header: BatchHeader) -> None:
        """Take a control batch of the dirty part; they come in the order of their offsets."""
        if self._counts(header):
            self._newest[header.producer_id] = header.base_offset

    def has(self, header: BatchHeader) -> bool:
        """Tell whether a control batch may be the last that tells of its producer.

        Of one without a marker in the dirty part this is so for all in the clean part.
        """
        if not self._counts(header):
            return False
        return header.base_offset >= self._newest.get(header.producer_id, 0)

    def _counts(self, header: BatchHeader) -> bool:
        producer_id = header.producer_id
        is_of_its_epoch = self._epochs.get(producer_id) == header.producer_epoch
        return is_of_its_epoch or producer_id in self._unsettled
