"""A broker is forgotten only when it is gone and nothing names it any more (I18)."""

import random
from dataclasses import replace
from typing import Any

import pytest

from fairlead_controller.decisions.decide import decide
from fairlead_controller.decisions.events import (
    AlterConfigs,
    ConfirmDeletions,
    DeleteTopics,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeatures,
)
from fairlead_controller.decisions.state import initial_state
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE, TableLayout, WritePlan
from fairlead_model.cluster import BrokerChanged, BrokerRemoved, PartitionChanged
from fairlead_model.features import FAIRLEAD_VERSION, UNSAID_FEATURES
from fairlead_model.session.calls import AlterConfigsCall, ResourceType
from fairlead_model.session.refusals import RefusalCode, RefusedError

AWAY = 2


def refusal(world: Any, broker_id: int = AWAY, *, has_session: bool = False) -> str:
    decision = world.decide(UnregisterBroker(broker_id, has_session=has_session))
    assert decision.changes == ()
    assert isinstance(decision.reply, RefusedError)
    assert decision.reply.code is RefusalCode.POLICY_VIOLATION
    return decision.reply.message


def configure(world: Any, broker: str, **configs: str) -> None:
    alterations = [
        {"name": name.replace("_", "."), "operation": 0, "value": value}
        for name, value in configs.items()
    ]
    resource: Any = {
        "resource_type": ResourceType.BROKER,
        "name": broker,
        "alterations": alterations,
    }
    call = AlterConfigsCall(resources=[resource], validate_only=False, incremental=True)
    (result,) = world.do(AlterConfigs(call))["resources"]
    assert result["error_code"] == 0, result


def test_a_broker_that_is_gone_and_holds_nothing_is_forgotten(world: Any) -> None:
    configure(world, str(AWAY), fairlead_broker_drain="true")
    world.fence(AWAY)
    assert world.do(UnregisterBroker(AWAY)) == {}
    state = world.state
    assert AWAY not in state.image.brokers
    assert state.image.broker_configs == {}
    assert state.cordoned == frozenset()
    again = world.decide(UnregisterBroker(AWAY))
    assert again.changes == ()
    assert isinstance(again.reply, RefusedError)
    assert again.reply.code is RefusalCode.BROKER_ID_NOT_REGISTERED


def test_its_line_leaves_the_table(world: Any) -> None:
    world.fence(AWAY)
    plan = WritePlan(TableLayout())
    plan.add(world.decide(UnregisterBroker(AWAY)).changes)
    assert plan.stages() == [{CLUSTER_TABLE: {f"broker/{AWAY}": None}}]


def test_who_is_in_service_or_connected_is_not_forgotten(world: Any) -> None:
    assert "it is in service, or was a moment ago" in refusal(world)
    world.fence(AWAY)
    assert "it is in service, or was a moment ago" in refusal(world, has_session=True)


def test_who_holds_a_replica_is_not_forgotten(world: Any) -> None:
    """I18."""
    fields = {"partitions": -1, "replication_factor": -1}
    world.create("t", assignments={index: [0, AWAY] for index in range(5)}, **fields)
    world.fence(AWAY)
    why = refusal(world)
    assert "it is a replica of t-0, t-1, t-2 and 2 more" in why
    assert f"fairlead broker drain {AWAY} --wait" in why


@pytest.mark.parametrize("field", ["queued_target", "adding_replicas"])
def test_who_will_hold_a_replica_is_not_forgotten(world: Any, field: str) -> None:
    fields = {"partitions": -1, "replication_factor": -1}
    world.create("t", assignments={0: [0, 1]}, **fields)
    world.fence(AWAY)
    more = {"replicas": (0, 1, AWAY)} if field == "adding_replicas" else {}
    record = world.partition().changed(**{field: (AWAY,)}, **more)
    topic = world.topic("t")
    world.state = world.state.apply([PartitionChanged(topic.topic_id, 0, record)])
    assert "it is a replica of t-0;" in refusal(world)


def test_nobody_waits_for_it_to_delete_anything(world: Any) -> None:
    fields = {"partitions": -1, "replication_factor": -1}
    world.create("kept", assignments={0: [0, 1]}, **fields)
    kept = world.state.image.topic("kept")
    record = world.partition("kept").changed(unconfirmed_removals=(AWAY,))
    world.state = world.state.apply([PartitionChanged(kept.topic_id, 0, record)])
    world.create("both", assignments={0: [1, AWAY]}, **fields)
    world.create("alone", assignments={0: [AWAY]}, **fields)
    both = world.topic("both").topic_id
    gone = [{"name": name, "topic_id": bytes(16)} for name in ("both", "alone")]
    world.do(DeleteTopics({"topics": gone}))  # type: ignore[typeddict-item]
    world.fence(AWAY)
    world.do(UnregisterBroker(AWAY))
    assert world.partition("kept").unconfirmed_removals == ()
    assert [each.name for each in world.state.image.deleting.values()] == ["both"]
    world.do(ConfirmDeletions(1, (both,)))
    assert not world.state.image.deleting


def test_its_feature_levels_hold_up_nobody(world: Any) -> None:
    world.register(AWAY, start_id="older", features=UNSAID_FEATURES)
    asked = [{"feature": FAIRLEAD_VERSION, "level": 2, "upgrade_type": 1}]
    raising = UpdateFeatures({"updates": asked, "validate_only": False})  # type: ignore[typeddict-item]
    assert isinstance(world.decide(raising).reply, RefusedError)
    world.do(UnregisterBroker(AWAY))
    assert world.do(raising) == {}


def test_its_minimum_of_in_sync_replicas_leaves_with_it(world: Any) -> None:
    world.create("t", partitions=-1, replication_factor=-1, assignments={0: [0, 1]})
    world.register(AWAY, start_id="again", min_insync_replicas=2)
    assert world.partition().min_insync_replicas == 2
    world.do(UnregisterBroker(AWAY))
    assert world.partition().min_insync_replicas == 1


def test_its_setting_that_forbids_unclean_elections_leaves_with_it(world: Any) -> None:
    for known in world.state.image.brokers.values():
        if known.broker_id != AWAY:
            world.do(RegisterBroker(replace(known, allows_unclean_election=True), ""))
    world.create("t", partitions=-1, replication_factor=-1, assignments={0: [0, 1]})
    world.fence(1, 0)
    world.restart(1, "again")
    assert world.sets()[0] == -1
    start = {"start_id": "once more", "is_clean": True, "allows_unclean_election": True}
    world.start_broker(1, previous_broker_epoch=world.epoch(1), **start)
    world.fence(AWAY)
    assert world.sets()[0] == -1
    world.do(UnregisterBroker(AWAY))
    assert world.sets()[0] == 1


def test_who_comes_back_is_a_new_broker(world: Any, make_registration: Any) -> None:
    old = world.epoch(AWAY)
    world.fence(AWAY)
    world.do(UnregisterBroker(AWAY))
    same_start = RegisterBroker(make_registration(AWAY, previous_broker_epoch=old), "")
    epoch = world.do(same_start)["broker_epoch"]
    assert epoch > old
    broker = world.state.image.brokers[AWAY]
    assert (broker.fenced, broker.is_clean) == (True, False)


def test_who_has_not_been_heard_since_a_restore_is_not_forgotten(world: Any) -> None:
    """It may hold partitions that moved to it after the copy was made."""
    broker = world.state.image.brokers[AWAY]
    forgotten = type(broker)(AWAY, broker_epoch=broker.broker_epoch, start_id="")
    world.state = world.state.apply([BrokerChanged(forgotten)])
    assert "it has not said what it holds since the metadata was restored" in refusal(world)
    configure(world, str(AWAY), fairlead_broker_drain="true")
    world.do(UnregisterBroker(AWAY))


@pytest.mark.parametrize("has_registered", [True, False])
def test_a_reign_remembers_who_may_have_followed_it(world: Any, has_registered: bool) -> None:
    world.fence(AWAY)
    state = world.state
    if not has_registered:
        state = initial_state(state.image, controller_epoch=2, counters=state.counters)
    decision = decide(state, UnregisterBroker(AWAY), now_ms=0, random=random.Random(0))
    assert BrokerRemoved(AWAY) in decision.changes
    state = state.apply(decision.changes)
    assert AWAY not in state.unconfirmed
    assert (AWAY in state.departed) == has_registered
