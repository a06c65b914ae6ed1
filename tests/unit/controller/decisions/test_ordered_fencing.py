"""A person takes a broker out of service, and it stays so until that is taken back."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fairlead_controller.decisions.decide import decide
from fairlead_controller.decisions.events import AlterConfigs, UnfenceBroker
from fairlead_controller.decisions.state import initial_state
from fairlead_model.configs.broker_configs import BROKER_FENCE
from fairlead_model.session.calls import AlterConfigsCall, AlterOperation, ResourceType
from fairlead_model.session.refusals import RefusalCode, RefusedError

OK = RefusalCode.NONE
REFUSED = RefusalCode.POLICY_VIOLATION
MINIMUM = {"min.insync.replicas": "2"}


class Fencer:
    """A world, and orders to fence its brokers."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def order(
        self, name: str, value: str | None, *, validate_only: bool = False
    ) -> tuple[RefusalCode, str]:
        operation = AlterOperation.DELETE if value is None else AlterOperation.SET
        alteration: Any = {"name": BROKER_FENCE, "operation": operation, "value": value}
        call = AlterConfigsCall(
            resources=[
                {"resource_type": ResourceType.BROKER, "name": name, "alterations": [alteration]}
            ],
            validate_only=validate_only,
            incremental=True,
        )
        (answer,) = self.world.do(AlterConfigs(call))["resources"]
        return RefusalCode(answer["error_code"]), str(answer["error_message"])

    def fence(self, broker_id: int) -> tuple[RefusalCode, str]:
        return self.order(str(broker_id), "its disk is odd")

    def is_in_service(self, broker_id: int) -> bool:
        return not self.world.state.image.brokers[broker_id].fenced

    def heartbeat(self, broker_id: int) -> None:
        """Let a broker say that it is ready, as it does all the time."""
        self.world.do(UnfenceBroker(broker_id, self.world.epoch(broker_id)))


@pytest.fixture
def three(make_world: Callable[..., Any]) -> Fencer:
    """Three brokers, and a topic t of one partition on 0 1 2, led by 0, two of them needed."""
    fencer = Fencer(make_world(3))
    create(fencer, "t", {0: [0, 1, 2]}, MINIMUM)
    return fencer


def create(
    fencer: Fencer, name: str, assignments: Mapping[int, list[int]], configs: Mapping[str, str]
) -> None:
    fields = {"partitions": -1, "replication_factor": -1}
    fencer.world.create(name, assignments=assignments, configs=configs, **fields)


def test_a_fenced_broker_leads_nothing_and_is_in_no_in_sync_set(three: Fencer) -> None:
    assert three.fence(0)[0] is OK
    assert three.world.sets() == (1, "12", "", "")
    assert not three.is_in_service(0)


def test_it_stays_so_whatever_it_says_and_whoever_decides(three: Fencer) -> None:
    """I19."""
    three.fence(0)
    with pytest.raises(RefusedError, match="broker 0 is fenced by order"):
        three.heartbeat(0)
    before = three.world.state
    three.world.state = initial_state(before.image, controller_epoch=2, counters=before.counters)
    assert three.world.state.ordered_out == {0}
    with pytest.raises(RefusedError, match="fenced by order"):
        three.world.restart(0, "another start")
    assert not three.is_in_service(0)


def test_it_is_back_once_that_is_taken_back_and_it_says_that_it_is_ready(three: Fencer) -> None:
    three.fence(0)
    assert three.order("0", None)[0] is OK
    assert not three.is_in_service(0)
    three.heartbeat(0)
    assert three.is_in_service(0)
    assert three.world.sets() == (1, "12", "", ""), "it has to catch up first"


def test_what_replaces_all_configs_of_a_broker_leaves_the_order(three: Fencer) -> None:
    three.fence(0)
    resource: Any = {"resource_type": ResourceType.BROKER, "name": "0", "alterations": []}
    call = AlterConfigsCall(resources=[resource], validate_only=False, incremental=False)
    three.world.do(AlterConfigs(call))
    assert three.world.state.ordered_out == {0}


def test_partitions_that_need_it_are_named_and_nothing_changes(three: Fencer) -> None:
    create(three, "alone", {0: [1]}, {})
    create(three, "pair", {0: [1, 2]}, MINIMUM)
    before = three.world.state
    code, message = three.fence(1)
    assert code is REFUSED
    assert "alone-0 has no other replica in sync" in message
    assert "pair-0 would have 1 in sync, and needs 2 (min.insync.replicas)" in message
    assert "t-0" not in message
    assert three.world.state == before
    assert three.fence(0)[0] is OK


def test_a_second_one_is_refused_where_the_minimum_is_reached(three: Fencer) -> None:
    three.fence(0)
    code, message = three.fence(1)
    assert code is REFUSED
    assert "t-0 would have 1 in sync, and needs 2" in message
    assert three.fence(0)[0] is OK, "a reason may be changed"


def test_a_broker_that_is_down_does_not_count_as_what_is_left(three: Fencer) -> None:
    three.world.fence(2)
    code, _ = three.fence(1)
    assert code is REFUSED


def test_many_partitions_are_counted(three: Fencer) -> None:
    create(three, "many", {index: [1] for index in range(9)}, {})
    _, message = three.fence(1)
    assert "many-4" in message
    assert "many-5" not in message
    assert message.endswith("; and 4 more")


def test_one_that_is_down_is_fenced_unless_a_partition_waits_for_it(three: Fencer) -> None:
    three.world.fence(0)
    assert three.fence(0)[0] is OK
    three.order("0", None)
    create(three, "alone", {0: [1]}, {})
    three.world.fence(1)
    code, message = three.fence(1)
    assert code is REFUSED
    assert "alone-0" in message


def test_nothing_new_is_placed_on_it(three: Fencer) -> None:
    three.fence(0)
    three.world.create("u", partitions=12, replication_factor=2)
    assert {each for part in three.world.partitions("u") for each in part.replicas} == {1, 2}
    answer = three.world.create("v", partitions=1, replication_factor=3)
    why = "2 brokers that are not being drained, fenced or cordoned (1 are)"
    assert why in answer["error_message"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("", "all", "is for one broker"),
        ("7", "gone", "there is no broker '7'"),
        ("1", "x" * 201, "at most 200 characters"),
    ],
)
def test_orders_that_make_no_sense(three: Fencer, name: str, value: str, message: str) -> None:
    code, text = three.order(name, value)
    assert code in (RefusalCode.INVALID_CONFIG, RefusalCode.INVALID_REQUEST)
    assert message in text


def test_a_question_changes_nothing(three: Fencer) -> None:
    assert three.order("0", "why not", validate_only=True)[0] is OK
    assert three.is_in_service(0)


def test_an_order_is_one_decision(three: Fencer) -> None:
    """A crash in between would leave a fenced broker without an order, or the reverse."""
    call = AlterConfigsCall(
        resources=[
            {
                "resource_type": ResourceType.BROKER,
                "name": "0",
                "alterations": [
                    {"name": BROKER_FENCE, "operation": AlterOperation.SET, "value": "odd"}
                ],
            }
        ],
        validate_only=False,
        incremental=True,
    )
    decision = decide(three.world.state, AlterConfigs(call), now_ms=0, random=three.world.random)
    after = three.world.state.apply(decision.changes)
    assert after.ordered_out == {0}
    assert after.image.brokers[0].fenced
