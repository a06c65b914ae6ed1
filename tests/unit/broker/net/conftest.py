"""Fixtures over the live broker."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from live_broker import FrameClient, LiveBroker

from fairlead_broker.net.server import ServerLimits


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path) as broker:
        yield broker


@pytest.fixture
def make_live(tmp_path: Path) -> Iterator[Callable[..., LiveBroker]]:
    """Brokers with limits of their own."""
    started: list[LiveBroker] = []

    def make(**limits: Any) -> LiveBroker:
        broker = LiveBroker(tmp_path, replace(ServerLimits(), **limits))
        started.append(broker)
        return broker.__enter__()

    yield make
    for broker in started:
        broker.__exit__(None, None, None)


@pytest.fixture
def connect(live: LiveBroker) -> Iterator[Callable[..., FrameClient]]:
    """Clients of `live`, closed at the end."""
    clients: list[FrameClient] = []

    def make(**options: int) -> FrameClient:
        client = FrameClient(live.port, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.socket.close()
