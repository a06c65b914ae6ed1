"""`fairlead txn find-hanging` says which partitions nobody could be asked about."""

from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_cli.client import transactions
from fairlead_cli.client.places import Place
from fairlead_cli.txn.hanging import find_hanging


def test_a_partition_without_a_leader_may_have_a_transaction_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It said "No transaction hangs." and ended with 0."""
    partitions = {index: SimpleNamespace(leader=-1 if index else 1) for index in range(3)}
    metadata = SimpleNamespace(
        topics={"orders": SimpleNamespace(partitions=partitions)},
        brokers={1: SimpleNamespace(id=1, host="localhost", port=9092)},
    )
    admin: Any = SimpleNamespace(list_topics=lambda **_: metadata)
    monkeypatch.setattr(transactions, "ask_every_broker", lambda _admin, _ask: ({1: []}, []))
    places = [Place("orders", index) for index in range(3)]
    hanging, untold = find_hanging(admin, places, now_ms=0, longer_than_ms=0)
    assert (hanging, untold) == ([], ["there is no leader of orders: 1-2"])
