import msgpack
import pytest

from fairlead_broker.session.image_follower import ImageFollower
from fairlead_controller.sessions import publication
from fairlead_controller.sessions.publication import DeltaLog
from fairlead_model.cluster import BrokerChanged, BrokerRegistration, empty_image


def joined(number: int) -> tuple[BrokerChanged, ...]:
    return (BrokerChanged(BrokerRegistration(number)),)


def test_a_broker_that_missed_nothing_gets_nothing() -> None:
    log = DeltaLog(3)
    log.append(joined(1))
    assert log.since(3, 1) == []
    assert len(log.since(3, 0) or []) == 1


def test_other_reigns_and_the_future_are_unknown() -> None:
    log = DeltaLog(3)
    log.append(joined(1))
    assert log.since(2, 1) is None
    assert log.since(4, 0) is None
    assert log.since(3, 2) is None


def test_what_is_forgotten_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    log = DeltaLog(3)
    size = sum(map(len, log.append(joined(1))))
    monkeypatch.setattr(publication, "DELTA_LOG_BYTES_MAX", 3 * size)
    for number in range(2, 8):
        log.append(joined(number))
    assert log.sequence == 7
    assert log.since(3, 3) is None
    assert len(log.since(3, 4) or []) == 3


def test_long_deltas_and_images_come_in_pieces_and_hold_from_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publication, "CHANGES_PER_MESSAGE", 2)
    changes = tuple(BrokerChanged(BrokerRegistration(number)) for number in range(5))
    image = empty_image("c").apply(changes)
    log = DeltaLog(1)
    assert len(log.append(changes)) == 3
    messages = [msgpack.unpackb(message) for message in log.image_messages(image)]
    assert len(messages) == 3
    follower = ImageFollower("c")
    follower.begin("c", 1)
    assert [follower.receive(message) for message in messages[:2]] == [None, None]
    whole = follower.receive(messages[2])
    assert whole is not None
    assert whole.image.brokers == image.brokers
    assert whole.position.sequence == 1


def test_changes_that_are_large_come_in_messages_that_a_broker_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publication, "MESSAGE_SIZE_MAX", 1_000)
    changes = tuple(
        BrokerChanged(BrokerRegistration(number, rack="r" * 300)) for number in range(5)
    )
    image = empty_image("c").apply(changes)
    log = DeltaLog(1)
    assert len(log.append(changes)) > 1
    messages = list(log.image_messages(image))
    assert max(map(len, messages)) <= 1_000
    follower = ImageFollower("c")
    follower.begin("c", 1)
    *first, whole = [follower.receive(msgpack.unpackb(message)) for message in messages]
    assert first == [None] * (len(messages) - 1)
    assert whole is not None
    assert whole.image.brokers == image.brokers


def test_a_change_that_is_large_by_itself_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "MESSAGE_SIZE_MAX", 10)
    assert len(DeltaLog(1).append(joined(1))) == 1


def test_an_empty_image_is_one_message() -> None:
    (message,) = DeltaLog(1).image_messages(empty_image("c"))
    assert msgpack.unpackb(message)["is_last"] is True
