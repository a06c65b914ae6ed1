"""Feature levels as Kafka clients see and change them."""

from typing import Any

import pytest

from fairlead_model.cluster import FeaturesChanged
from fairlead_model.features import FAIRLEAD_VERSION, GROUP_VERSION, FinalizedFeatures
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from fairlead_wire.messages.unregister_broker import UnregisterBrokerRequest
from fairlead_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE_DOWNGRADE = 1, 2


def told(stage: Any, version: int = 4) -> tuple[int, dict[str, int]]:
    response = stage.ask(ApiVersionsRequest("a", "1"), version)
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    assert levels == {each.name: each.min_version_level for each in response.finalized_features}
    return response.finalized_features_epoch, levels


@pytest.mark.parametrize("version", [3, 4])
def test_clients_are_told_the_levels_in_force(stage: Any, version: int) -> None:
    """A cluster from before there were levels has what was in force then."""
    kafka = {"group.version": 1, "transaction.version": 2}
    assert told(stage, version) == (0, {"fairlead.version": 1, **kafka})
    stage.publish(FeaturesChanged(FinalizedFeatures(1, {FAIRLEAD_VERSION: 2})))
    assert told(stage, version) == (1, {"fairlead.version": 2, **kafka})
    # A level of 0 is none, as in Kafka.
    stage.publish(FeaturesChanged(FinalizedFeatures(2, {GROUP_VERSION: 0})))
    assert told(stage, version) == (2, {"fairlead.version": 1, "transaction.version": 2})


def test_groups_of_the_consumer_protocol_can_be_turned_off(stage: Any) -> None:
    request = ConsumerGroupHeartbeatRequest("g", member_id="m", member_epoch=-1)
    answer = stage.ask(request, 1)
    assert answer.error_code != ErrorCode.UNSUPPORTED_VERSION
    stage.publish(FeaturesChanged(FinalizedFeatures(2, {GROUP_VERSION: 0})))
    answer = stage.ask(request, 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message == "the cluster has turned off group.version"


@pytest.mark.parametrize("version", range(3))
def test_updates_are_the_controllers(stage: Any, version: int) -> None:
    stage.controller.script["update_features"] = lambda body: {}
    updates = [FeatureUpdateKey("f", 2), FeatureUpdateKey("g", 0)]
    if version:
        updates[1].upgrade_type = SAFE_DOWNGRADE
    else:
        updates[1].allow_downgrade = True
    asked = UpdateFeaturesRequest(5000, updates, validate_only=bool(version))
    answer = stage.ask(asked, version)
    assert stage.controller.calls == [
        (
            "update_features",
            {
                "updates": [
                    {"feature": "f", "level": 2, "upgrade_type": UPGRADE},
                    {"feature": "g", "level": 0, "upgrade_type": SAFE_DOWNGRADE},
                ],
                "validate_only": bool(version),
            },
        )
    ]
    assert answer.error_code == 0
    results = [(each.feature, each.error_code) for each in answer.results]
    assert results == ([("f", 0), ("g", 0)] if version < 2 else [])


@pytest.mark.parametrize("version", range(3))
def test_a_refusal_is_one_of_the_whole_request(stage: Any, version: int) -> None:
    def refuse(body: Any) -> Any:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "broker 3 is too old")

    stage.controller.script["update_features"] = refuse
    answer = stage.ask(UpdateFeaturesRequest(5000, [FeatureUpdateKey("f", 2)]), version)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message == "broker 3 is too old"
    assert answer.results == []


def test_forgetting_a_broker_is_the_controllers(stage: Any) -> None:
    stage.controller.script["unregister_broker"] = lambda body: {}
    answer = stage.ask(UnregisterBrokerRequest(3), 0)
    assert stage.controller.calls == [("unregister_broker", {"broker_id": 3})]
    assert (answer.error_code, answer.error_message) == (0, None)

    def refuse(body: Any) -> Any:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "broker 3 cannot be unregistered: because")

    stage.controller.script["unregister_broker"] = refuse
    answer = stage.ask(UnregisterBrokerRequest(3), 0)
    assert answer.error_code == ErrorCode.POLICY_VIOLATION
    assert answer.error_message == "broker 3 cannot be unregistered: because"
