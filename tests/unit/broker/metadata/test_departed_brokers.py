from fairlead_broker.limits import DEPARTED_BROKER_LISTED_MS
from fairlead_broker.metadata.departed_brokers import DepartedBrokers
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import BrokerChanged, ClusterDelta, ClusterImage, empty_image


def change(broker_id: int, *, fenced: bool) -> BrokerChanged:
    return BrokerChanged(BrokerRegistration(broker_id=broker_id, fenced=fenced))


def tell(
    departed: DepartedBrokers, image: ClusterImage, *changes: BrokerChanged, now_ms: int
) -> ClusterImage:
    after = image.apply(changes)
    departed.publish(image, ClusterDelta(changes), after, now_ms)
    return after


def test_who_goes_is_named_for_a_while() -> None:
    departed = DepartedBrokers()
    image = tell(departed, empty_image("c"), change(1, fenced=False), now_ms=0)
    assert departed.listed(0) == frozenset()
    image = tell(departed, image, change(1, fenced=True), now_ms=1000)
    image = tell(departed, image, change(1, fenced=True), now_ms=5000)
    assert departed.listed(999 + DEPARTED_BROKER_LISTED_MS) == {1}
    assert departed.listed(1000 + DEPARTED_BROKER_LISTED_MS) == frozenset()


def test_who_is_back_needs_no_mention_and_who_never_came_gets_none() -> None:
    departed = DepartedBrokers()
    image = tell(departed, empty_image("c"), change(1, fenced=False), now_ms=0)
    image = tell(departed, image, change(1, fenced=True), change(2, fenced=True), now_ms=10)
    assert departed.listed(20) == {1}
    tell(departed, image, change(1, fenced=False), now_ms=30)
    assert departed.listed(40) == frozenset()


def test_a_broker_that_starts_names_those_that_are_away_when_it_comes() -> None:
    departed = DepartedBrokers()
    image = tell(
        departed, empty_image("c"), change(1, fenced=False), change(2, fenced=True), now_ms=1000
    )
    assert departed.listed(999 + DEPARTED_BROKER_LISTED_MS) == {2}
    assert departed.listed(1000 + DEPARTED_BROKER_LISTED_MS) == frozenset()
    # One that is registered later and was never in service is not away.
    tell(departed, image, change(3, fenced=True), now_ms=1100)
    assert departed.listed(1200) == frozenset()
