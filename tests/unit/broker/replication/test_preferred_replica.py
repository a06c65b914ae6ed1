"""Which replica a consumer in a rack reads from."""

import pytest

from fairlead_broker.replication.preferred_replica import Follower, preferred_follower

HERE, BEHIND, AHEAD, ELSEWHERE = (
    Follower(2, "b", 10),
    Follower(3, "b", 9),
    Follower(4, "b", 11),
    Follower(5, "c", 20),
)


@pytest.mark.parametrize(
    ("rack", "followers", "expected"),
    [
        ("a", [HERE], None),  # where the leader is
        ("b", [HERE, ELSEWHERE], 2),
        ("b", [BEHIND, ELSEWHERE], None),  # it does not have what is asked for
        ("b", [HERE, AHEAD], 4),  # the one that has most
        ("b", [Follower(7, "b", 10), HERE], 2),
        ("d", [HERE, ELSEWHERE], None),
        ("b", [], None),
    ],
)
def test_the_follower_in_the_rack_that_has_most_or_the_leader(
    rack: str, followers: list[Follower], expected: int | None
) -> None:
    assert preferred_follower(rack, "a", 10, followers) == expected


def test_a_leader_without_a_rack_is_in_no_rack() -> None:
    assert preferred_follower("b", None, 10, [HERE]) == 2
