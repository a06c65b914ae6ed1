"""Fixtures for tests of decisions: a world of three brokers, and what it is made of."""

from collections.abc import Callable

import pytest
from decision_world import World, creatable, create_topics, registration

from fairlead_controller.decisions.events import CreateTopics
from fairlead_model.broker import BrokerRegistration
from fairlead_model.session.calls import CreatableTopic


@pytest.fixture
def make_world() -> Callable[..., World]:
    return World


@pytest.fixture
def world() -> World:
    """Three brokers in service."""
    return World(3)


@pytest.fixture
def make_topic() -> Callable[..., CreatableTopic]:
    return creatable


@pytest.fixture
def make_create() -> Callable[..., CreateTopics]:
    return create_topics


@pytest.fixture
def make_registration() -> Callable[..., BrokerRegistration]:
    return registration
