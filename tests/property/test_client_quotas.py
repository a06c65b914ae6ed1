"""Meters against a list of all that was ever used, and precedence against Kafka's own words."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from fairlead_broker.quota.meter import Meter, Windows
from fairlead_model.security.client_quota import FoundQuota, find_ip_quota, find_quota

WINDOWS = st.builds(Windows, st.integers(1, 5), st.sampled_from([1000, 2000]))
USES = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 10_000)), max_size=30)


class SlowMeter:
    """Every use with its time; windows are counted anew for each question."""

    def __init__(self, limit: float, windows: Windows) -> None:
        self.limit = limit
        self.windows = windows
        self.uses: list[tuple[int, float]] = []

    def elapsed_ms(self, now_ms: int) -> int:
        number, size_ms = self.windows
        return max((number - 1) * size_ms + now_ms % size_ms, size_ms)

    def rate(self, now_ms: int) -> float:
        number, size_ms = self.windows
        first = now_ms // size_ms - number + 1
        used = sum(amount for at_ms, amount in self.uses if at_ms // size_ms >= first)
        return used * 1000 / self.elapsed_ms(now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        above = (self.rate(now_ms) - self.limit) / self.limit
        return max(0, round(above * self.elapsed_ms(now_ms)))


@given(WINDOWS, USES, st.integers(1, 5000), st.integers(0, 10**12))
def test_a_meter_says_what_all_uses_say(
    windows: Windows, uses: list[tuple[int, int]], limit: int, start_ms: int
) -> None:
    meter, slow = Meter(limit, windows, start_ms), SlowMeter(limit, windows)
    now_ms = start_ms
    for pause_ms, amount in uses:
        now_ms += pause_ms
        assert meter.rate(now_ms) == slow.rate(now_ms)
        assert meter.throttle_ms(now_ms) == slow.throttle_ms(now_ms)
        meter.charge(amount, now_ms)
        slow.uses.append((now_ms, amount))
        assert meter.rate(now_ms) == slow.rate(now_ms)
        assert meter.throttle_ms(now_ms) == slow.throttle_ms(now_ms)
        assert meter.is_quiet(now_ms) == (slow.rate(now_ms) == 0)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8))
def test_who_waits_as_long_as_he_is_told_keeps_to_his_limit_and_is_not_held_below_it(
    amounts: list[int],
) -> None:
    """Over a quarter of an hour. A request is let in before it is counted, as in Kafka."""
    limit, windows = 1000, Windows(11, 1000)
    meter, now_ms, used, count = Meter(limit, windows, 0), 0, 0.0, 0
    while now_ms < 900_000:
        amount = amounts[count % len(amounts)]
        count += 1
        meter.charge(amount, now_ms)
        used += amount
        now_ms += meter.throttle_ms(now_ms)
    rate = used * 1000 / now_ms
    overdrawn = max(amounts) / (limit * windows.burst_s)
    assert 0.95 * limit <= rate <= (1.03 + overdrawn) * limit


@given(WINDOWS, st.integers(1, 1000), st.integers(0, 10**9))
def test_what_is_taken_back_was_never_used(windows: Windows, amount: int, now_ms: int) -> None:
    meter = Meter(1, windows, now_ms)
    meter.charge(7, now_ms)
    before = meter.rate(now_ms)
    meter.charge(amount, now_ms)
    meter.charge(-amount, now_ms)
    assert math.isclose(meter.rate(now_ms), before)


NAMES = st.sampled_from([None, "a", "b"])
Entity = tuple[tuple[str, str | None], ...]

ENTITIES = st.one_of(
    NAMES.map(lambda name: (("user", name),)),
    NAMES.map(lambda name: (("client-id", name),)),
    NAMES.map(lambda name: (("ip", name),)),
    st.tuples(NAMES, NAMES).map(lambda names: (("user", names[0]), ("client-id", names[1]))),
)
ASKED = st.sampled_from(["a", "b", "c", ""])


@given(
    st.dictionaries(ENTITIES, st.dictionaries(st.sampled_from("kq"), st.floats(0.1, 9))),
    ASKED,
    ASKED,
)
def test_the_most_specific_quota_counts_for_each_key(
    quotas: dict[Entity, dict[str, float]], user: str, client_id: str
) -> None:
    """DefaultQuotaCallback says it as a list of paths in ZooKeeper, the first of which counts."""
    paths = [
        (f"/config/users/{user}/clients/{client_id}", (user, client_id)),
        (f"/config/users/{user}/clients/<default>", (user, client_id)),
        (f"/config/users/{user}", (user, None)),
        (f"/config/users/<default>/clients/{client_id}", (user, client_id)),
        ("/config/users/<default>/clients/<default>", (user, client_id)),
        ("/config/users/<default>", (user, None)),
        (f"/config/clients/{client_id}", (None, client_id)),
        ("/config/clients/<default>", (None, client_id)),
    ]
    words = {"user": "users", "client-id": "clients", "ip": "ips"}

    def path_of(entity: Entity) -> str:
        parts = [f"{words[kind]}/{'<default>' if name is None else name}" for kind, name in entity]
        return "/config/" + "/".join(parts)

    stored = {path_of(entity): (entity, values) for entity, values in quotas.items()}
    expected = None
    for path, sharers in paths:
        entity, values = stored.get(path, ((), {}))
        if "k" in values:
            expected = FoundQuota(values["k"], sharers, entity)
            break
    assert find_quota(quotas, "k", user, client_id) == expected


def test_an_address_of_its_own_counts_before_the_default() -> None:
    quotas: dict[Entity, dict[str, float]] = {
        (("ip", None),): {"connection_creation_rate": 1.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
        (("ip", "10.0.0.2"),): {"of a newer release": 5.0},
    }
    assert find_ip_quota(quotas, "10.0.0.1") == 5
    assert find_ip_quota(quotas, "10.0.0.2") == 1
    assert find_ip_quota({}, "10.0.0.1") is None
