"""Whether new topics wait for the brokers of a starting cluster."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_controller.controller import open_controller
from fairlead_controller.decisions.events import RegisterBroker
from fairlead_controller.kubernetes.broker_arrivals import (
    QUIET_S,
    BrokerArrivals,
    describe_wait,
    expected_brokers,
)
from fairlead_controller.kubernetes.watches import Watches
from fairlead_controller.stores.file import open_file_store


def pool(cluster: str, *, deleting: bool = False, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "p", **({"deletionTimestamp": "now"} if deleting else {})}
    return {"metadata": metadata, "spec": {"clusterName": cluster, **spec}}


def test_brokers_of_all_pools_are_expected() -> None:
    pools = [
        pool("demo", replicas=2),
        pool("demo", replicas=1, idBase=10),
        pool("other", replicas=5),
        pool("demo", replicas=3, idBase=20, deleting=True),
        pool("demo", replicas="many", idBase=30),
        {"metadata": {"name": "empty"}},
    ]
    assert expected_brokers(pools, "demo") == {0, 1, 10}


@pytest.mark.parametrize(
    ("expected", "registered", "quiet_s", "is_waiting"),
    [
        ({0, 1, 2}, {0}, 0.1, True),
        ({0, 1, 2}, {0}, QUIET_S, False),
        ({0, 1, 2}, {0, 1, 2}, 0.0, False),
        ({0, 1, 2}, {0, 1, 5}, 0.1, True),
        (set(), {0}, 0.0, False),
        (None, {0}, 0.1, True),
        (None, {0}, QUIET_S, False),
    ],
)
def test_waiting_ends_with_the_last_broker_or_after_a_quiet_time(
    expected: set[int] | None, registered: set[int], quiet_s: float, is_waiting: bool
) -> None:
    assert bool(describe_wait(expected, registered, quiet_s)) is is_waiting


def test_pools_that_may_not_be_read_are_not_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else new topics would all go to the brokers that happen to be up first."""
    client: Any = None  # nothing is asked
    watches = Watches(client, (), on_clusters=lambda: None, on_machines=lambda: None)
    assert watches.expected_brokers(("shop", "demo")) is None, "nothing was listed yet"
    pools = {("shop", "p"): pool("demo", replicas=2)}
    hidden = {"bank"}.__contains__
    listed = SimpleNamespace(objects=pools, is_synced=True, is_hidden=hidden)
    monkeypatch.setattr(watches, "pools", listed)
    assert watches.expected_brokers(("shop", "demo")) == frozenset({0, 1})
    assert watches.expected_brokers(("bank", "demo")) is None


def test_who_is_missing_is_said() -> None:
    message = describe_wait(set(range(10)), {0, 1}, 0.0)
    assert "2 of 10 brokers have registered, broker 2, 3, 4, 5, 6, … not yet" in message


def test_each_new_broker_begins_the_quiet_time_anew(tmp_path: Path, make_registration: Any) -> None:
    async def story() -> None:
        store = await open_file_store(tmp_path)
        controller = await open_controller(store, now_ms=lambda: 0)
        deciding = asyncio.create_task(controller.run())
        clock = [100.0]
        arrivals = BrokerArrivals(controller, lambda: {0, 1, 2}, now=lambda: clock[0])
        clock[0] += QUIET_S - 1
        await controller.submit(RegisterBroker(make_registration(0), ""))
        clock[0] += QUIET_S - 1
        assert "1 of 3" in arrivals.wait()
        await controller.submit(RegisterBroker(make_registration(0, start_id="again"), ""))
        clock[0] += 1
        assert not arrivals.wait(), "a broker that comes again is no new one"
        for number in (1, 2):
            await controller.submit(RegisterBroker(make_registration(number), ""))
        assert not arrivals.wait()
        known = BrokerArrivals(controller, lambda: {0, 1, 2}, now=lambda: clock[0])
        assert not known.wait(), "a cluster that has been up lets nobody wait"
        deciding.cancel()
        await asyncio.gather(deciding, return_exceptions=True)
        await store.close()

    asyncio.run(story())
