from fairlead_broker.limits import LEADER_DOUBT_MS
from fairlead_broker.metadata.leader_doubts import LeaderDoubts
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import BrokerChanged, ClusterImage, empty_image


def image(*, fenced: bool = False) -> ClusterImage:
    registrations = [
        BrokerRegistration(broker_id=number, fenced=fenced and number == 1) for number in range(3)
    ]
    return empty_image("c").apply([BrokerChanged(each) for each in registrations])


def test_nobody_waits_while_nobody_is_in_doubt() -> None:
    doubts = LeaderDoubts()
    assert not doubts
    assert doubts.remaining_ms(image(), 0) == 0


def test_a_doubt_ends_with_its_time_and_what_stays_broken_is_no_news() -> None:
    doubts = LeaderDoubts()
    doubts.doubt(1, 1000)
    assert doubts.remaining_ms(image(), 1100) == LEADER_DOUBT_MS - 100
    doubts.doubt(1, 1200)
    assert doubts.remaining_ms(image(), 1000 + LEADER_DOUBT_MS) <= 0


def test_the_word_of_the_controller_ends_it() -> None:
    doubts = LeaderDoubts()
    doubts.doubt(1, 1000)
    assert doubts.remaining_ms(image(fenced=True), 1001) == 0
    doubts.settle(image(fenced=True))
    assert not doubts
    doubts.doubt(1, 9000)  # a later life
    assert doubts.remaining_ms(image(), 9000) == LEADER_DOUBT_MS


def test_a_leader_that_answers_again_is_trusted() -> None:
    doubts = LeaderDoubts()
    doubts.doubt(1, 1000)
    doubts.trust(1)
    assert doubts.remaining_ms(image(), 1001) == 0
