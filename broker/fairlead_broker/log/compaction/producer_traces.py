"""What a cleaning has to keep of active producers. Pure.

A log may be truncated down to the high watermark, and the state of producers then comes from the
remaining batches. So the newest batch of each producer below the high watermark stays, in addition
to its newest batch. The newest one may be truncated, and then the log would not recognize a retry
of the other one. Kafka's cleaner keeps only the newest batch.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fairlead_broker.log.producers.producer_state import ProducerEntry


class ProducerTraces(NamedTuple):
    """Lists, because they are sent to a child process.

    `last_offsets` are pairs of producer id and last offset of the batch that has to stay.
    `last_epochs` are pairs of producer id and epoch, of producers without a remembered batch.
    `unsettled` are producers whose whole remembered state may be truncated. Their older batches
    are not known, so all of their batches stay for now, and their newest marker.
    """

    last_offsets: list[tuple[int, int]]
    last_epochs: list[tuple[int, int]]
    unsettled: list[int]


def producer_traces(
    producers: Iterable[ProducerEntry], high_watermark: int, *, has_uncommitted_markers: bool
) -> ProducerTraces:
    """Return what a cleaning has to keep of these producers.

    An entry does not say where its producer's marker is. If some markers are above the high
    watermark (`has_uncommitted_markers`), they may be those of any producer without a batch.
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
