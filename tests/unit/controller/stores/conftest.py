"""Metadata to export, restore and confirm."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from short_reign import reign

from fairlead_controller.decisions.events import (
    AlterConfigs,
    CreateTopics,
    DeleteTopics,
    Event,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.broker import BrokerRegistration
from fairlead_model.session.calls import CreatableTopic


@pytest.fixture
def cluster(
    tmp_path: Path,
    make_registration: Callable[..., BrokerRegistration],
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> tuple[Path, ControllerState]:
    """Metadata of three brokers with a topic of two partitions, and one being deleted."""
    events: list[Event] = []
    for broker_id in range(3):
        events.append(RegisterBroker(make_registration(broker_id), ""))
        events.append(UnfenceBroker(broker_id, broker_id + 1))
    configs = {"min.insync.replicas": "2"}
    events.append(
        make_create(
            make_topic("t", partitions=2, replication_factor=3, configs=configs),
            make_topic("gone"),
        )
    )
    events.append(DeleteTopics({"topics": [{"name": "gone", "topic_id": bytes(16)}]}))
    alterations = [{"name": "consumer.session.timeout.ms", "operation": 0, "value": "50000"}]
    resource = {"resource_type": 32, "name": "a group\n%", "alterations": alterations}
    call: Any = {"resources": [resource], "validate_only": False, "incremental": True}
    events.append(AlterConfigs(call))
    state = asyncio.run(reign(tmp_path / "old", *events))
    return tmp_path, state
