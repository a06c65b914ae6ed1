"""What a cleaning has to leave of active producers. Pure.

A log may be cut off as far as the high watermark, and what it remembers of producers is then told
by the batches that are left. So of each producer the newest batch below the high watermark stays,
not just the newest of all: that one may go yet, and then the log would know no retry of the other.
Kafka's cleaner keeps the newest of all only.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fairlead_broker.log.producers.producer_state import ProducerEntry


class ProducerTraces(NamedTuple):
    """Lists, because a child process is told of them.

    `last_offsets` are pairs of producer id and last offset of the batch that has to stay.
    `last_epochs` are pairs of producer id and epoch, of those of whom no batch is remembered.
    `unsettled` are those of whom all that is remembered may be cut off: of what lies below nothing
    is known here, so all of their batches stay for now, and their newest marker.
    """

    last_offsets: list[tuple[int, int]]
    last_epochs: list[tuple[int, int]]
    unsettled: list[int]


def producer_traces(
    producers: Iterable[ProducerEntry], high_watermark: int, *, has_uncommitted_markers: bool
) -> ProducerTraces:
    """Return what stays of them.

    No entry says where its marker is: where the markers of some lie above the high watermark
    (`has_uncommitted_markers`), each producer without a batch may be one of these.
    """
    traces = ProducerTraces([], [], [])
    for entry in producers:
        committed = [batch for batch in entry.batches if batch.last_offset < high_watermark]
        if committed:
            traces.last_offsets.append((entry.producer_id, committed[-1].last_offset))
        elif entry.batches or has_uncommitted_markers:
            traces.unsettled.append(entry.producer_id)
        else:
            traces.last_epochs.append((entry.producer_id, entry.epoch))
    return traces
