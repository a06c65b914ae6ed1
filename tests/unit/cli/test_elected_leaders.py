"""`fairlead topic elect` shows who leads after the election, whichever broker it asks."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from fairlead_cli.topic import elect as module
from fairlead_cli.topic.elect import elect


class Admin:
    """A client whose broker hears of elections after it has been asked so often."""

    def __init__(self, old: int, new: int, *, late: int, errors: dict[int, Any] | None = None):
        self.leaders = [old] * late
        self.new = new
        self.errors = errors or {}
        self.asked = 0

    def elect_leaders(self, _kind: Any, places: list[TopicPartition]) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result({place: self.errors.get(place.partition) for place in places})
        return done

    def list_topics(self, **_: Any) -> Any:
        self.asked += 1
        leader = self.leaders.pop() if self.leaders else self.new
        partition = SimpleNamespace(id=0, leader=leader, replicas=[1, 2])
        topic = SimpleNamespace(error=None, partitions={0: partition})
        return SimpleNamespace(topics={"t": topic})


@pytest.mark.parametrize(("is_unclean", "old", "new"), [(False, 2, 1), (True, -1, 2)])
def test_the_leader_is_the_one_that_was_elected(is_unclean: bool, old: int, new: int) -> None:
    admin: Any = Admin(old, new, late=3)
    (row,) = elect(admin, "t", [0], is_unclean=is_unclean)
    assert (row["leader"], row["error"]) == (new, None)


def test_where_nothing_was_elected_nobody_is_waited_for() -> None:
    error = SimpleNamespace(name=lambda: "ELECTION_NOT_NEEDED", str=lambda: "")
    admin: Any = Admin(2, 2, late=0, errors={0: error})
    (row,) = elect(admin, "t", [0], is_unclean=False)
    assert (row["leader"], row["error"], admin.asked) == (2, "ELECTION_NOT_NEEDED", 1)


def test_a_broker_that_never_hears_of_it_is_believed_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "VISIBLE_TIMEOUT_S", 0.05)
    admin: Any = Admin(2, 2, late=0)
    (row,) = elect(admin, "t", [0], is_unclean=False)
    assert row["leader"] == 2
