"""The settings of a sink's producer: `kafka.*` with the names of the Java producer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fairlead_spark import limits
from fairlead_spark.client_settings import (
    COUNT_MAX,
    NUMBER_MAX,
    ClientSettings,
    read_whole,
)
from fairlead_spark.errors import OptionError
from fairlead_wire.compression import Codec
from fairlead_wire.record_batch import BATCH_HEADER_SIZE

_CODECS: Final = {codec.name.lower(): codec for codec in Codec}


@dataclass(frozen=True)
class ProducerSettings:
    """Settings of the producer.

    `record_bytes_max` and `batch_bytes_max` are before compression. `queue_bytes` may wait for
    acknowledgement before a task has to wait. `transaction_timeout_s` is for exactlyOnce.
    """

    codec: Codec
    record_bytes_max: int
    batch_bytes_max: int
    queue_bytes: int
    delivery_timeout_s: float
    transaction_timeout_s: float


def read_producer_settings(client: ClientSettings) -> ProducerSettings:
    """Return the producer's settings among a client's; OptionError for invalid ones."""
    given = dict(client.producer)
    if given.get("acks", "all") not in ("all", "-1"):
        raise OptionError("kafka.acks must be all: the sink's producer is idempotent")
    codec = given.get("compression.type", "none").strip().lower()
    if codec not in _CODECS:
        raise OptionError(f"kafka.compression.type is '{codec}'; it can be {', '.join(_CODECS)}")
    request = _number(given, "max.request.size", limits.SINK_REQUEST_BYTES, least=BATCH_HEADER_SIZE)
    return ProducerSettings(
        codec=_CODECS[codec],
        record_bytes_max=request,
        batch_bytes_max=min(request, _number(given, "batch.size", limits.SINK_BATCH_BYTES)),
        queue_bytes=_number(given, "buffer.memory", limits.SINK_QUEUE_BYTES, most=COUNT_MAX),
        delivery_timeout_s=_number(
            given, "delivery.timeout.ms", round(limits.DELIVERY_TIMEOUT_S * 1000), least=1
        )
        / 1000,
        transaction_timeout_s=_number(
            given, "transaction.timeout.ms", round(limits.TRANSACTION_TIMEOUT_S * 1000), least=1
        )
        / 1000,
    )


def _number(
    given: Mapping[str, str], name: str, default: int, *, least: int = 0, most: int = NUMBER_MAX
) -> int:
    return read_whole(f"kafka.{name}", given.get(name, str(default)), least=least, most=most)
