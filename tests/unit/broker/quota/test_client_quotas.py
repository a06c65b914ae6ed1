"""The table of meters: who shares one, what changes of quotas do, how large it may become."""

from __future__ import annotations

import pytest

from fairlead_broker.quota import client_quotas
from fairlead_broker.quota.client_quotas import ClientQuotas
from fairlead_broker.quota.meter import Windows

RATE = "producer_byte_rate"
EVERY_USER = (("user", None),)
EVERY_CLIENT = (("client-id", None),)


@pytest.fixture
def quotas() -> ClientQuotas:
    return ClientQuotas(Windows(11, 1000))


def produce(quotas: ClientQuotas, user: str, client_id: str, amount: float, now_ms: int = 0) -> int:
    """Charge a client; how long he has to wait."""
    meter = quotas.meters_of(user, client_id, now_ms).produce
    assert meter is not None
    meter.charge(amount, now_ms)
    return meter.throttle_ms(now_ms)


def test_clients_of_a_user_share_his_quota_and_other_users_do_not(quotas: ClientQuotas) -> None:
    quotas.publish({EVERY_USER: {RATE: 100.0}})
    assert produce(quotas, "alice", "one", 1000) == 0
    assert produce(quotas, "alice", "two", 500) == 5000
    assert produce(quotas, "bob", "one", 1000) == 0


def test_a_pair_has_its_own_meter(quotas: ClientQuotas) -> None:
    quotas.publish({(("user", "alice"), ("client-id", None)): {RATE: 100.0}})
    assert produce(quotas, "alice", "one", 2000) == 10_000
    assert produce(quotas, "alice", "two", 1000) == 0
    assert quotas.meters_of("bob", "one", 0).produce is None


def test_each_kind_has_the_quota_that_is_most_specific_for_it(quotas: ClientQuotas) -> None:
    quotas.publish(
        {
            (("user", "alice"),): {"consumer_byte_rate": 5.0},
            EVERY_USER: {RATE: 7.0, "consumer_byte_rate": 8.0, "controller_mutation_rate": 1.0},
        }
    )
    meters = quotas.meters_of("alice", "c", 0)
    assert meters.fetch is not None
    assert meters.produce is not None
    assert (meters.fetch.limit, meters.produce.limit, meters.request) == (5, 7, None)
    assert meters.limits_mutations


def test_another_limit_holds_at_once_for_what_was_used_before(quotas: ClientQuotas) -> None:
    quotas.publish({EVERY_USER: {RATE: 100.0}})
    assert produce(quotas, "alice", "c", 1500) == 5000
    before = quotas.version
    quotas.publish({EVERY_USER: {RATE: 1000.0}})
    assert quotas.version > before
    assert produce(quotas, "alice", "c", 0) == 0
    quotas.publish({})
    assert quotas.meters_of("alice", "c", 0).produce is None


def test_who_is_bound_is_known_without_looking(quotas: ClientQuotas) -> None:
    told: list[tuple[bool, bool]] = []
    quotas.on_changed = lambda: told.append((quotas.binds_clients, quotas.binds_addresses))
    quotas.publish({EVERY_USER: {RATE: 1.0}})
    quotas.publish({(("ip", None),): {"connection_creation_rate": 1.0}})
    same: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {
        EVERY_CLIENT: {RATE: 1.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 1.0},
    }
    quotas.publish(same)
    quotas.publish(same)
    quotas.publish({})
    assert told == [(True, False), (False, True), (True, True), (False, False)]


def test_a_meter_that_was_quiet_in_all_windows_is_forgotten(quotas: ClientQuotas) -> None:
    quotas.publish({EVERY_USER: {RATE: 100.0}})
    produce(quotas, "alice", "c", 1, now_ms=0)
    produce(quotas, "bob", "c", 1, now_ms=5000)
    quotas.forget_quiet(10_999)
    assert len(quotas) == 2
    before = quotas.version
    quotas.forget_quiet(11_000)
    assert len(quotas) == 1
    assert quotas.version > before, "whoever held the meter asks for one again"


def test_who_has_no_connection_to_mute_is_refused_for_the_time_that_is_told(
    quotas: ClientQuotas,
) -> None:
    quotas.publish({EVERY_USER: {RATE: 100.0}})
    told_ms = produce(quotas, "alice", "rest", 3000)
    meter = quotas.meters_of("alice", "rest", 0).produce
    assert meter is not None
    assert meter.held_ms(0) == 0, "he has not used it yet by HTTP"
    meter.hold(0)
    assert told_ms == 20_000
    assert [meter.held_ms(now_ms) for now_ms in (0, 15_000, 20_000)] == [told_ms, 5000, 0]
    # Nobody gets out of it because his windows are quiet again.
    quotas.forget_quiet(15_000)
    assert quotas.meters_of("alice", "rest", 15_000).produce is meter
    quotas.forget_quiet(20_000)
    assert len(quotas) == 0


def test_another_limit_holds_at_once_for_who_is_refused(quotas: ClientQuotas) -> None:
    quotas.publish({EVERY_USER: {RATE: 100.0}})
    produce(quotas, "alice", "rest", 3000)
    meter = quotas.meters_of("alice", "rest", 0).produce
    assert meter is not None
    meter.hold(0)
    quotas.publish({EVERY_USER: {RATE: 200.0}})
    meter = quotas.meters_of("alice", "rest", 0).produce
    assert meter is not None
    assert meter.held_ms(0) == 5000
    quotas.publish({EVERY_USER: {RATE: 300.0}})
    meter = quotas.meters_of("alice", "rest", 0).produce
    assert meter is not None
    assert meter.held_ms(0) == 0


def test_rotating_client_ids_win_nothing_and_take_no_memory(
    quotas: ClientQuotas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_quotas, "QUOTA_METERS_MAX", 10)
    quotas.publish({EVERY_CLIENT: {RATE: 100.0}})
    for number in range(10):
        assert produce(quotas, "u", f"c{number}", 1000) == 0
    waits = [produce(quotas, "u", f"new{number}", 1000) for number in range(1000)]
    assert len(quotas) == 10
    assert waits[:3] == [0, 10_000, 20_000]
    assert waits == sorted(waits)
    assert produce(quotas, "u", "c3", 0) == 0, "who was known is told apart still"


def test_an_address_that_connects_too_often_waits_no_longer_than_a_window(
    quotas: ClientQuotas,
) -> None:
    quotas.publish(
        {
            (("ip", None),): {"connection_creation_rate": 2.0},
            (("ip", "10.0.0.9"),): {"connection_creation_rate": 100.0},
        }
    )
    delays = [quotas.delay_connection("10.0.0.1", 0) for _ in range(30)]
    assert delays[:20] == [0] * 20
    assert set(delays[20:]) == {500}, "who is not taken in is not counted"
    assert [quotas.delay_connection("10.0.0.9", 0) for _ in range(30)] == [0] * 30
    assert quotas.delay_connection("10.0.0.1", 11_000) == 0
    quotas.publish({(("ip", "10.0.0.9"),): {"connection_creation_rate": 1.0}})
    assert quotas.delay_connection("10.0.0.1", 0) == 0
