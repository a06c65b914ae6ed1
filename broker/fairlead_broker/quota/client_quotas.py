"""The quotas of the cluster's image and the meters of those whom they bind.

A meter exists only while a quota applies to an active client. A meter that was idle in all windows
is removed. Beyond `QUOTA_METERS_MAX`, new clients share one meter for each quota that applies to
them: another client id with each request gains nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_broker.limits import QUOTA_METERS_MAX
from fairlead_broker.quota.meter import Meter, Windows
from fairlead_model.security.client_quota import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    FoundQuota,
    find_ip_quota,
    find_quota,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from fairlead_model.security.client_quota import QuotaEntity, Quotas


class ClientMeters(NamedTuple):
    """The meters of one client; None if no quota limits it."""

    produce: Meter | None
    fetch: Meter | None
    request: Meter | None
    limits_mutations: bool
    """The controller keeps the meter of these, for the whole cluster."""


class ClientQuotas:
    """`version` rises whenever the meters of a client may have changed."""

    def __init__(self, windows: Windows, mutation_burst_s: int = 1) -> None:
        self.windows = windows
        self.mutation_burst_s = mutation_burst_s
        self.version = 0
        self.binds_clients = False
        """Whether any quota is for users or client ids."""
        self.binds_addresses = False
        self.on_changed: Callable[[], None] | None = None
        """Told after each change of quotas; the server, while it runs."""
        self._quotas: Mapping[QuotaEntity, Quotas] = {}
        self._meters: dict[Hashable, Meter] = {}
        self._shared: dict[Hashable, Meter] = {}
        """Those of the many for whom there is no room, by key and entity."""

    def __len__(self) -> int:
        return len(self._meters)

    def publish(self, quotas: Mapping[QuotaEntity, Quotas]) -> None:
        """Go by these quotas from now on."""
        if quotas is self._quotas:
            return
        self._quotas = quotas
        self.version += 1
        self.binds_addresses = any(entity[0][0] == IP for entity in quotas)
        self.binds_clients = any(entity[0][0] != IP for entity in quotas)
        self._shared.clear()
        if self.on_changed is not None:
            self.on_changed()

    def meters_of(self, user: str, client_id: str, now_ms: int) -> ClientMeters:
        """Return the meters of a client; they are his until `version` is another one."""
        mutations = find_quota(self._quotas, CONTROLLER_MUTATION_RATE, user, client_id)
        return ClientMeters(
            self._client_meter(PRODUCER_BYTE_RATE, user, client_id, now_ms),
            self._client_meter(CONSUMER_BYTE_RATE, user, client_id, now_ms),
            self._client_meter(REQUEST_PERCENTAGE, user, client_id, now_ms),
            limits_mutations=mutations is not None,
        )

    def delay_connection(self, address: str, now_ms: int) -> int:
        """Return for how long a new connection of an address may not be served; 0 takes it in.

        One that is not taken in is not counted (`ConnectionQuotas` of Kafka).
        """
        limit = find_ip_quota(self._quotas, address)
        if limit is None:
            return 0
        quota = FoundQuota(limit, (address, None), ((IP, None),))
        meter = self._meter(CONNECTION_CREATION_RATE, quota, now_ms)
        meter.charge(1, now_ms)
        delay_ms = meter.throttle_ms(now_ms)
        if delay_ms:
            meter.charge(-1, now_ms)
        return min(delay_ms, self.windows.size_ms)

    def forget_quiet(self, now_ms: int) -> None:
        """Let go of the meters that say nothing."""
        quiet = [key for key, meter in self._meters.items() if meter.is_quiet(now_ms)]
        for key in quiet:
            del self._meters[key]
        if quiet:
            # Whoever holds one of them may have to share another one with somebody who comes now.
            self.version += 1

    def _client_meter(self, key: str, user: str, client_id: str, now_ms: int) -> Meter | None:
        quota = find_quota(self._quotas, key, user, client_id)
        return None if quota is None else self._meter(key, quota, now_ms)

    def _meter(self, key: str, quota: FoundQuota, now_ms: int) -> Meter:
        meters, name = self._meters, (key, quota.sharers)
        meter = meters.get(name)
        if meter is None and len(meters) >= QUOTA_METERS_MAX:
            meters, name = self._shared, (key, quota.entity)  # type: ignore[assignment]
            meter = meters.get(name)
        if meter is None:
            meter = meters[name] = Meter(quota.limit, self.windows, now_ms)
        meter.limit = quota.limit
        return meter
