"""The live broker, for hostile input."""

from collections.abc import Iterator

import pytest
from live_broker import LiveBroker


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path_factory.mktemp("logs")) as broker:
        broker.add_partition("t")
        broker.add_partition("t", 1)
        yield broker
