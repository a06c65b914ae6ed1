from typing import Any

import pytest

from fairlead_broker.session.image_follower import ImageFollower, Position
from fairlead_model.cluster import BrokerChanged, BrokerRegistration, BrokerRemoved, Change
from fairlead_model.codec import encode_changes
from fairlead_model.session.session_protocol import SessionProtocolError


def message(
    epoch: int, sequence: int, *changes: Change, image: bool = False, last: bool = True
) -> dict[str, Any]:
    return {
        "type": "changes",
        "position": [epoch, sequence],
        "changes": encode_changes(changes),
        "is_image": image,
        "is_last": last,
    }


def broker(number: int, epoch: int = 1) -> BrokerChanged:
    return BrokerChanged(BrokerRegistration(number, epoch))


@pytest.fixture
def follower() -> ImageFollower:
    """One that follows controller 2 at sequence 5 and knows brokers 1 and 2."""
    follower = ImageFollower()
    follower.begin("c", 2)
    take(follower, message(2, 5, broker(1), broker(2), image=True))
    return follower


def take(follower: ImageFollower, received: dict[str, Any]) -> tuple[Change, ...]:
    publication = follower.receive(received)
    assert publication is not None
    follower.commit(publication)
    return publication.delta.changes


def test_deltas_follow_one_another(follower: ImageFollower) -> None:
    assert take(follower, message(2, 6, broker(3))) == (broker(3),)
    assert follower.position == Position(2, 6)
    assert set(follower.image.brokers) == {1, 2, 3}


def test_a_delta_in_pieces_holds_from_the_last(follower: ImageFollower) -> None:
    assert follower.receive(message(2, 6, broker(3), last=False)) is None
    assert set(follower.image.brokers) == {1, 2}
    assert take(follower, message(2, 6, broker(4))) == (broker(3), broker(4))


def test_a_new_image_is_published_as_the_difference(follower: ImageFollower) -> None:
    changes = take(follower, message(3, 0, broker(2, epoch=9), broker(4), image=True))
    assert set(changes) == {BrokerRemoved(1), broker(2, epoch=9), broker(4)}
    assert follower.position == Position(3, 0)


def test_a_publication_that_failed_comes_again(follower: ImageFollower) -> None:
    first = follower.receive(message(2, 6, broker(3)))
    follower.begin("c", 2)
    assert follower.position == Position(2, 5)
    assert follower.receive(message(2, 6, broker(3))) == first


def test_half_a_delta_is_forgotten_on_a_new_connection(follower: ImageFollower) -> None:
    follower.receive(message(2, 6, broker(3), last=False))
    follower.begin("c", 2)
    assert take(follower, message(2, 6, broker(4))) == (broker(4),)


@pytest.mark.parametrize(
    "received",
    [
        message(2, 5, broker(3)),
        message(2, 7, broker(3)),
        message(3, 6, broker(3)),
        message(1, 6, broker(3)),
        message(1, 9, broker(3), image=True),
        {"type": "changes"},
        message(2, 6) | {"position": [2]},
        message(2, 6) | {"position": None},
        message(2, 6) | {"is_last": 1},
        message(2, 6) | {"changes": [["x"]]},
        message(2, 6) | {"changes": [["-t", b"x" * 16]]},
    ],
)
def test_gaps_deposed_controllers_and_nonsense_are_refused(
    follower: ImageFollower, received: dict[str, Any]
) -> None:
    with pytest.raises(SessionProtocolError):
        follower.receive(received)
    assert follower.position == Position(2, 5)


def test_a_deposed_controller_is_not_listened_to(follower: ImageFollower) -> None:
    with pytest.raises(SessionProtocolError, match="epoch 1"):
        follower.begin("c", 1)
    with pytest.raises(SessionProtocolError, match="cluster other"):
        follower.begin("other", 3)
