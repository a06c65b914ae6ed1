"""The application under a drill goes on, and tells, when its client refuses a record."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from waiting import wait_until

from fairlead_cli.drill.history import History
from fairlead_cli.drill.workload import Workload


class FencedProducer:
    """Refuses every record, as librdkafka does after a fatal error.

    The client raises the error itself once, from the next call that handles answers: as the cause
    of a SystemError if a callback ran meanwhile.
    """

    def __init__(self) -> None:
        self.is_flushed = False
        self.is_told = False

    def produce(self, *_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    def poll(self, _timeout: float) -> int:
        if not self.is_told:
            self.is_told = True
            fenced = KafkaException(KafkaError(KafkaError._FENCED))
            raise SystemError("a callback returned a result with an exception set") from fenced
        return 0

    def flush(self, _timeout: float) -> int:
        self.is_flushed = True
        return 0


def test_a_client_that_takes_no_records_is_told_as_its_error() -> None:
    workload = Workload(
        "localhost:1", "drill", partitions=1, rate=1000, record_size=100, history=History()
    )
    workload.producer = FencedProducer()
    workload.start()
    wait_until(lambda: workload.errors["_FATAL"] > 1 and workload.errors["_FENCED"] > 0)
    workload.stop()
    assert workload.producer.is_flushed
    assert [history.next_sequence for history in workload.keys] == [0, 0]
