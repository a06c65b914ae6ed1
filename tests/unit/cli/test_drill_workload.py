"""The application under a drill goes on, and tells, when its client refuses a record."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from waiting import wait_until

from fairlead_cli.drill.history import History
from fairlead_cli.drill.workload import Workload


class FencedProducer:
    """Refuses every record, as librdkafka does after a fatal error."""

    def __init__(self) -> None:
        self.is_flushed = False

    def produce(self, *_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    def poll(self, _timeout: float) -> int:
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
    wait_until(lambda: workload.errors["_FATAL"] > 1)
    workload.stop()
    assert workload.producer.is_flushed
    assert [history.next_sequence for history in workload.keys] == [0, 0]
