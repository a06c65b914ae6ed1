"""`produce` tells of records that are lost while more come, and splits no transaction."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from fairlead_cli.client import delivery
from fairlead_cli.client.delivery import Deliveries, Destination, send_all
from fairlead_cli.errors import CliError
from fairlead_cli.records.source import SourceRecord

TOO_LARGE = SourceRecord(None, b"x" * 2_000, [], 2_000)


@pytest.fixture
def producer(free_port: int) -> Producer:
    """librdkafka's own, to which nobody listens: it refuses large records by itself."""
    return Producer({"bootstrap.servers": f"127.0.0.1:{free_port}", "message.max.bytes": 1_000})


def send(producer: Producer, records: Iterator[SourceRecord], *, is_transactional: bool) -> int:
    """Return how many records are lost."""
    deliveries = Deliveries()
    destination = Destination("t", None, None, None, is_transactional=is_transactional)
    send_all(producer, destination, records, deliveries, lambda _size, _sent: None)
    return deliveries.failed


def test_a_loss_is_told_before_the_source_has_ended(
    producer: Producer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "POLL_INTERVAL_S", 0.0)
    told = []

    def records() -> Iterator[SourceRecord]:
        for _ in range(3):
            yield TOO_LARGE
            told.append(capsys.readouterr().err)

    assert send(producer, records(), is_transactional=False) == 3
    assert "Not all records are written to t, going on: " in told[0]
    assert "MSG_SIZE_TOO_LARGE" in told[0]
    assert told[1:] == ["", ""], "once"


def test_bytes_that_are_not_written_are_not_counted(producer: Producer) -> None:
    deliveries = Deliveries()
    send_all(
        producer,
        Destination("t", None, None, None),
        iter([SourceRecord(b"key", b"x" * 2_000, [], 2_003)]),
        deliveries,
        lambda _size, _sent: None,
    )
    assert (deliveries.sent, deliveries.failed, deliveries.written_bytes) == (1, 1, 0)


def test_a_record_that_is_refused_ends_its_transaction(producer: Producer) -> None:
    """The others were committed without it."""
    with pytest.raises(CliError, match=r"a record cannot be written to 't': .*too large"):
        send(producer, iter([TOO_LARGE] * 3), is_transactional=True)
