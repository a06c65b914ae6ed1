"""A broker that dies while an admin client waits for its answer: another one is asked."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from fairlead_cli.client import access
from fairlead_cli.client.connection import describe_cluster, fetch_metadata
from fairlead_cli.errors import CliError, NoAnswerError


class DyingBrokers:
    """An admin client: as many questions as there are codes fail, the next one is answered."""

    def __init__(self, *codes: int) -> None:
        self._codes = list(codes)
        self.asked_count = 0

    def describe_cluster(self) -> Future[Any]:
        self.asked_count += 1
        future: Future[Any] = Future()
        if self._codes:
            future.set_exception(KafkaException(KafkaError(self._codes.pop(0))))
        else:
            future.set_result(SimpleNamespace(cluster_id="one", nodes=[]))
        return future


def test_the_next_broker_is_asked() -> None:
    admin: Any = DyingBrokers(KafkaError._TRANSPORT)
    assert describe_cluster(admin).cluster_id == "one"


def test_it_is_said_that_nobody_answers() -> None:
    admin: Any = DyingBrokers(KafkaError._TRANSPORT, KafkaError._TRANSPORT)
    with pytest.raises(NoAnswerError, match=r"cannot describe the cluster: .*\(TRANSPORT\)"):
        describe_cluster(admin)


def test_what_a_broker_refuses_is_not_asked_again() -> None:
    admin: Any = DyingBrokers(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(CliError, match="CLUSTER_AUTHORIZATION_FAILED") as raised:
        describe_cluster(admin)
    assert not isinstance(raised.value, NoAnswerError)
    assert admin.asked_count == 1


@pytest.mark.parametrize(
    ("settings", "is_told"), [({}, True), ({"security.protocol": "sasl_ssl"}, False)]
)
def test_who_does_not_log_in_is_told_that_brokers_may_ask_for_it(
    settings: dict[str, str], is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener with SASL ends the connection after ApiVersions, and librdkafka says no more."""
    monkeypatch.setattr(access, "_settings", settings)

    def list_topics(**_named: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    client: Any = SimpleNamespace(list_topics=list_topics)
    with pytest.raises(NoAnswerError) as raised:
        fetch_metadata(client)
    assert (raised.value.hint is not None and "--client-config" in raised.value.hint) is is_told
