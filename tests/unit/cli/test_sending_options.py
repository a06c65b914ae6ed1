"""Which options of `produce` contradict each other, and what they mean to librdkafka."""

import click
import pytest

from fairlead_cli.sending_options import SendingOptions


def options(**given: object) -> SendingOptions:
    plain: dict[str, object] = {
        "partition": None,
        "partitioner": None,
        "acks": "all",
        "idempotent": None,
        "compression": "none",
        "batch_size": None,
        "linger_ms": 5,
        "rate": None,
    }
    return SendingOptions(**(plain | given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"idempotent": True, "acks": "1"}, "--idempotent needs --acks all"),
        ({"idempotent": True, "retries": 3}, "no --retries"),
        ({"commit_every": 10}, "--commit-every needs --transactional-id"),
        ({"transactional_id": "t", "acks": "1"}, "--transactional-id needs"),
        ({"transactional_id": "t", "idempotent": False}, "--transactional-id needs"),
        ({"transactional_id": "t", "retries": 0}, "--transactional-id needs"),
    ],
)
def test_contradictions_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        options(**given).check()


def test_without_retries_a_record_is_written_at_most_once() -> None:
    settings = options(retries=0).settings
    assert settings["retries"] == 0
    assert settings["enable.idempotence"] is False


def test_a_transaction_is_idempotent() -> None:
    settings = options(transactional_id="t").settings
    assert settings["transactional.id"] == "t"
    assert settings["enable.idempotence"] is True
