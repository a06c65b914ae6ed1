"""What a cluster says of brokers that come and go."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from fairlead_spark import limits
from fairlead_spark.client_settings import ClientSettings
from fairlead_spark.cluster import CONNECTION_ERRORS, Cluster, Topic
from fairlead_spark.options import Subscription


@pytest.mark.parametrize(
    "ask",
    [
        lambda cluster: cluster.call(7, None, 1),
        lambda cluster: cluster.connection(7),
        lambda cluster: cluster.produce_connection(7),
    ],
)
def test_a_broker_that_left_while_leaders_were_looked_up_is_trouble_that_passes(
    ask: Callable[[Cluster], Any],
) -> None:
    """Another topic was looked up behind its own, and the dead broker is not listed any more."""
    with pytest.raises(CONNECTION_ERRORS, match="broker 7 is no longer in the cluster"):
        ask(Cluster(ClientSettings("a:1")))


def test_a_topic_that_was_just_made_is_looked_for_until_a_broker_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = {"orders": Topic("orders", b"\1" * 16, {0: 1}, {0: 0})}
    answers = [made, {}, {}]
    monkeypatch.setattr(Cluster, "read_topics", lambda *_: answers.pop())
    wanted = Subscription(topics=("orders",))
    assert Cluster(ClientSettings("a:1")).find_topics(wanted) == made
    monkeypatch.setattr(Cluster, "read_topics", lambda *_: {})
    monkeypatch.setattr(limits, "NEW_TOPIC_S", 0.2)
    assert Cluster(ClientSettings("a:1")).find_topics(wanted) == {}


def test_a_topic_that_was_just_made_is_looked_for_again_if_the_first_answer_comes_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker had no processor, and had not heard of the topic yet when it went on."""
    made = {"orders": Topic("orders", b"\1" * 16, {0: 1}, {0: 0})}
    answers = iter([{}, made])
    monkeypatch.setattr(limits, "NEW_TOPIC_S", 1.0)

    def read_topics(*_: Any) -> dict[str, Topic]:
        found = next(answers)
        if not found:
            time.sleep(1.2 * limits.NEW_TOPIC_S)
        return found

    monkeypatch.setattr(Cluster, "read_topics", read_topics)
    wanted = Subscription(topics=("orders",))
    assert Cluster(ClientSettings("a:1")).find_topics(wanted) == made
