"""Which trees of znodes may be taken over, and what is said of the others."""

from typing import Any

import pytest

from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoreError,
    StoreRolledBackError,
    StoreTooNewError,
)
from fairlead_controller.zookeeper.tree_check import ForeignTreeError, Tree, check_tree
from fairlead_model.broker import BrokerRegistration
from fairlead_zookeeper import znodes

ME = znodes.CandidateRecord("controller-10000", 10000, "h", 1, 2)
OURS: dict[str, Any] = {
    "root": znodes.root_value("A"),
    "cluster": znodes.cluster_value("A"),
    "controller": znodes.controller_value(ME, 0),
    "brokers": {"0": znodes.broker_value(BrokerRegistration(0, directory_id="d"), 0)},
    "has_topics": True,
    "has_tables": True,
    "epoch": 7,
}
KAFKA_CONTROLLER = b'{"version":1,"brokerid":0,"timestamp":"1"}'
KAFKA_BROKER = b'{"version":4,"host":"h","port":9092,"endpoints":["PLAINTEXT://h:9092"]}'


def test_an_empty_tree_is_to_be_founded_and_ours_is_known() -> None:
    assert check_tree(Tree(), known_cluster="", known_epoch=0) == ""
    assert check_tree(Tree(**OURS), known_cluster="", known_epoch=0) == "A"
    assert check_tree(Tree(**OURS), known_cluster="A", known_epoch=7) == "A"


def test_containers_without_a_cluster_are_to_be_founded() -> None:
    assert check_tree(Tree(root=b"", epoch=3), known_cluster="", known_epoch=0) == ""


@pytest.mark.parametrize(
    ("tree", "error", "says"),
    [
        ({"controller": KAFKA_CONTROLLER}, ForeignTreeError, "/controller is of a Kafka"),
        ({"controller": b"3"}, ForeignTreeError, "/controller is of a Kafka"),
        ({"brokers": {"1": KAFKA_BROKER}}, ForeignTreeError, "/brokers/ids/1 is of a Kafka broker"),
        ({"root": None, "has_tables": False}, ForeignTreeError, "of a Kafka cluster"),
        ({"cluster": znodes.cluster_value("B")}, ForeignTreeError, "two clusters"),
        ({"root": b"nonsense"}, StoreCorruptError, "/fairlead cannot be read: b'nonsense'"),
        ({"root": b'{"format":0,"cluster_id":"A"}'}, StoreCorruptError, "has format 0"),
        (
            {"root": b'{"format":2,"cluster_id":"A","release":"9.1"}'},
            StoreTooNewError,
            "/fairlead has format version 2, .* reads 1: run release 9.1, or a later one",
        ),
        ({"has_tables": False}, StoreRolledBackError, "holds no table of the cluster A"),
    ],
)
def test_a_tree_of_others_or_a_damaged_one_is_refused(
    tree: dict[str, Any], error: type[StoreError], says: str
) -> None:
    with pytest.raises(error, match=says):
        check_tree(Tree(**OURS | tree), known_cluster="", known_epoch=0)


def test_what_an_acl_hides_in_a_tree_of_ours_keeps_nobody_from_a_takeover() -> None:
    tree = Tree(**OURS | {"cluster": None, "brokers": {}, "hidden": ("/brokers/ids/0",)})
    assert check_tree(tree, known_cluster="", known_epoch=0) == "A"


def test_a_tree_in_which_a_kafka_may_be_hidden_is_not_founded() -> None:
    tree = Tree(hidden=("/brokers/ids/0",))
    with pytest.raises(ForeignTreeError, match=r"/brokers/ids/0 cannot be read, and .* chroot of"):
        check_tree(tree, known_cluster="", known_epoch=0)


def test_a_candidate_of_another_cluster_writes_nothing() -> None:
    with pytest.raises(ForeignTreeError, match="of the cluster A, this controller belongs to B"):
        check_tree(Tree(**OURS), known_cluster="B", known_epoch=0)


def test_a_tree_that_went_back_in_time_is_refused() -> None:
    with pytest.raises(StoreRolledBackError, match="is 7, this controller has seen 8"):
        check_tree(Tree(**OURS), known_cluster="A", known_epoch=8)


def test_a_tree_that_is_gone_is_not_founded_again() -> None:
    with pytest.raises(StoreRolledBackError, match="knows nothing of the cluster A any more"):
        check_tree(Tree(), known_cluster="A", known_epoch=7)
