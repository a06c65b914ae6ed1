"""When the topics of the manifests count as served."""

from typing import Any

from fairlead_cli.local.declared_topics import find_open_topics


def status(
    *, waiting: tuple[str, ...] = (), topics: tuple[tuple[str, str | None, int], ...]
) -> Any:
    return {
        "declaredTopics": {"waiting": list(waiting), "problems": []},
        "topics": [
            {"name": name, "resource": resource, "offline": offline}
            for name, resource, offline in topics
        ],
    }


def test_topics_with_leaders_are_served() -> None:
    assert find_open_topics(status(topics=(("a", "a", 0), ("b", None, 0)))) == []


def test_waiting_and_leaderless_topics_are_open() -> None:
    seen = status(waiting=("new",), topics=(("a", "a", 2), ("b", "b", 0)))
    assert find_open_topics(seen) == ["a", "new"]


def test_a_topic_that_nobody_declares_does_not_hold_up_the_start() -> None:
    """Its broker may be one that is not started this time."""
    assert find_open_topics(status(topics=(("other", None, 3),))) == []
