import pytest

from fairlead_model.cluster import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRegistration,
    BrokerRemoved,
    Change,
    ClusterDelta,
    ClusterImage,
    Endpoint,
    GroupConfigsChanged,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicRemoved,
    TopicState,
    empty_image,
)
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)


def topic(name: str, topic_id: TopicId, *replicas: tuple[int, ...]) -> list[Change]:
    return [
        TopicChanged(TopicHeader(name, topic_id, len(replicas))),
        *(
            PartitionChanged(topic_id, index, PartitionRegistration(held, held, leader=held[0]))
            for index, held in enumerate(replicas)
        ),
    ]


def broker(broker_id: int, *, fenced: bool = False) -> BrokerChanged:
    return BrokerChanged(BrokerRegistration(broker_id, broker_epoch=1, fenced=fenced))


@pytest.fixture
def image() -> ClusterImage:
    changes = [broker(1), broker(2), *topic("a", A, (1,), (2,)), *topic("b", B, (1, 2))]
    return empty_image("cluster").apply(changes)


def held(image: ClusterImage, broker_id: int) -> set[tuple[str, int]]:
    return {(topic.name, index) for topic, index in image.replicas_of(broker_id)}


def test_lookups(image: ClusterImage) -> None:
    assert image.topic("a") is image.topic_by_id(A)
    assert image.topic_name(B) == "b"
    assert image.topic("c") is None
    assert image.topic_by_id(b"c" * 16) is None
    partition = image.partition("a", 1)
    assert partition is not None
    assert partition.replicas == (2,)
    assert image.partition("a", 2) is None
    assert image.partition("a", -1) is None
    assert {topic.name for topic in image.topics()} == {"a", "b"}
    assert image.is_live(1)
    assert not image.is_live(3)


def test_the_reverse_index_follows_replicas(image: ClusterImage) -> None:
    assert held(image, 1) == {("a", 0), ("b", 0)}
    moved = image.apply([PartitionChanged(A, 0, PartitionRegistration((2,), (2,)))])
    assert held(moved, 1) == {("b", 0)}
    assert held(moved, 2) == {("a", 0), ("a", 1), ("b", 0)}
    assert held(image, 1) == {("a", 0), ("b", 0)}, "the older image is untouched"


def test_a_change_shares_what_it_does_not_name(image: ClusterImage) -> None:
    partition = PartitionRegistration((1,), (1,), leader=-1, leader_epoch=1, partition_epoch=1)
    changed = image.apply(ClusterDelta((PartitionChanged(A, 0, partition),)))
    assert changed.topic("b") is image.topic("b")
    before, after = image.topic("a"), changed.topic("a")
    assert before is not None
    assert after is not None
    assert after.partitions[1] is before.partitions[1]
    assert image.apply(ClusterDelta()) is image


def test_a_deletion_frees_the_name_at_once_and_keeps_the_record(image: ClusterImage) -> None:
    header = TopicHeader("a", A, 2, TopicState.DELETING, unconfirmed_deletions=frozenset({1, 2}))
    deleting = image.apply([TopicChanged(header)])
    assert deleting.topic("a") is None
    assert deleting.topic_by_id(A) is None
    assert deleting.deleting == {A: header}
    assert held(deleting, 1) == {("b", 0)}
    again = TopicId(b"c" * 16)
    remade = deleting.apply(topic("a", again, (1,)))
    assert remade.topic_name(again) == "a"
    gone = remade.apply([TopicRemoved(A)])
    assert gone.deleting == {}
    assert A not in gone.topics_by_id
    assert gone.topic_name(again) == "a"


def test_changes_that_do_not_fit_are_refused(image: ClusterImage) -> None:
    partition = PartitionRegistration((1,), (1,))
    with pytest.raises(ValueError, match="unknown"):
        image.apply([PartitionChanged(TopicId(b"c" * 16), 0, partition)])
    with pytest.raises(ValueError, match="comes after"):
        image.apply([PartitionChanged(A, 3, partition)])
    with pytest.raises(ValueError, match="name"):
        image.apply(topic("a", TopicId(b"c" * 16), (1,)))
    with pytest.raises(ValueError, match="unknown"):
        image.apply([TopicRemoved(TopicId(b"c" * 16))])


def test_brokers_and_their_configs_come_and_go(image: ClusterImage) -> None:
    configured = image.apply([BrokerConfigsChanged("1", {"a": "b"}), BrokerRemoved(2)])
    assert configured.configs_of_broker(1) == {"a": "b"}
    assert configured.configs_of_broker(2) == {}
    assert set(configured.brokers) == {1}
    assert configured.apply([BrokerConfigsChanged("1", {})]).broker_configs == {}


def test_configs_of_groups_come_and_go(image: ClusterImage) -> None:
    configured = image.apply([GroupConfigsChanged("g", {"a": "b"}), GroupConfigsChanged("h", {})])
    assert configured.group_configs == {"g": {"a": "b"}}
    assert configured.apply([broker(3)]).group_configs is configured.group_configs
    rebuilt = empty_image("cluster").apply(configured.changes_from_nothing())
    assert rebuilt.group_configs == configured.group_configs
    assert configured.apply([GroupConfigsChanged("g", {})]).group_configs == {}
    assert image.group_configs == {}


def test_an_image_is_rebuilt_by_its_own_changes(image: ClusterImage) -> None:
    rebuilt = empty_image("cluster").apply(image.changes_from_nothing())
    assert list(rebuilt.changes_since(image)) == []
    assert list(image.changes_since(rebuilt)) == []


def test_the_difference_of_two_images_leads_from_one_to_the_other(image: ClusterImage) -> None:
    later = image.apply(
        [
            broker(3),
            BrokerRemoved(2),
            BrokerConfigsChanged("", {"x": "y"}),
            GroupConfigsChanged("g", {"x": "y"}),
            TopicRemoved(A),
            *topic("a", TopicId(b"c" * 16), (3,)),
            PartitionChanged(B, 0, PartitionRegistration((1, 3), (1,), leader=1)),
        ]
    )
    for older, newer in ((image, later), (later, image)):
        reached = older.apply(newer.changes_since(older))
        assert list(reached.changes_since(newer)) == []
        assert reached.group_configs == newer.group_configs
        for broker_id in (1, 2, 3):
            assert held(reached, broker_id) == held(newer, broker_id)


def test_endpoints_are_found_by_listener() -> None:
    client = Endpoint("CLIENT", "h", 1)
    registration = BrokerRegistration(1, endpoints=(client,))
    assert registration.endpoint("CLIENT") is client
    assert registration.endpoint("INTERNAL") is None
