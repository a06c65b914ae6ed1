"""How many partitions a client may have made and removed (KIP-599). Pure, with the time passed in.

Each entity that shares a quota has a token bucket: it fills by the rate, up to the tokens of all
windows, and each partition takes a token. A request is checked before it is charged, so one request
may overdraw, and the next ones wait. Requests of versions that know THROTTLING_QUOTA_EXCEEDED are
refused topic by topic while there is debt; older ones are carried out, and their client is told to
wait.

A new controller begins with full buckets.
"""

from dataclasses import dataclass
from typing import Final

from fairlead_controller.decisions.events import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Event,
)
from fairlead_model.cluster import ClusterImage
from fairlead_model.security.client_quota import (
    CONTROLLER_MUTATION_RATE,
    SharerKey,
    find_quota,
    throttle_time_ms,
)
from fairlead_model.session.refusals import RefusalCode, RefusedError

BUCKETS_MAX: Final = 10_000
"""Sharers of quotas that are remembered; of more, the one whose bucket is fullest is forgotten."""


@dataclass(slots=True)
class TokenBucket:
    """The tokens that are left; below zero is debt."""

    tokens: float
    at_ms: int

    def fill(self, rate: float, burst: float, now_ms: int) -> None:
        """Add what came in since the last time."""
        elapsed_ms = max(0, now_ms - self.at_ms)
        self.tokens = min(burst, self.tokens + rate * elapsed_ms / 1000)
        self.at_ms = now_ms


class MutationAllowance:
    """What one request may change, and how long its client has to wait afterwards."""

    def __init__(self, bucket: TokenBucket, rate: float, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._rate = rate
        self._is_strict = is_strict
        self.throttle_time_ms = 0

    def charge(self, partitions: int) -> None:
        """Take tokens; RefusedError while there is debt, if the client understands it."""
        bucket = self._bucket
        if self._is_strict and bucket.tokens < 0:
            self._note_debt()
            raise RefusedError(
                RefusalCode.THROTTLING_QUOTA_EXCEEDED,
                "the controller_mutation_rate of this client is used up; "
                f"try again in {self.throttle_time_ms} ms",
            )
        bucket.tokens -= partitions
        if not self._is_strict and bucket.tokens < 0:
            self._note_debt()

    def _note_debt(self) -> None:
        self.throttle_time_ms = throttle_time_ms(-self._bucket.tokens * 1000 / self._rate)


class MutationQuotas:
    """The buckets of one reign."""

    def __init__(self) -> None:
        self._buckets: dict[SharerKey, TokenBucket] = {}

    def allowance(self, image: ClusterImage, event: Event, now_ms: int) -> MutationAllowance | None:
        """Return how much the client may change now, None if there is no limit."""
        if not isinstance(event, CreateTopics | CreatePartitions | DeleteTopics):
            return None
        asker = event.call.get("asker")
        if asker is None:
            return None
        quota = find_quota(
            image.client_quotas, CONTROLLER_MUTATION_RATE, asker["user"], asker["client_id"]
        )
        if quota is None:
            return None
        burst = quota.limit * asker["burst_s"]
        bucket = self._buckets.pop(quota.sharers, None) or TokenBucket(burst, now_ms)
        bucket.fill(quota.limit, burst, now_ms)
        if len(self._buckets) >= BUCKETS_MAX:
            del self._buckets[max(self._buckets, key=lambda each: self._buckets[each].tokens)]
        self._buckets[quota.sharers] = bucket
        return MutationAllowance(bucket, quota.limit, is_strict=asker["is_strict"])


def throttling(allowance: MutationAllowance | None) -> dict[str, int]:
    """Return the field of a reply that says how long its client has to wait."""
    return {} if allowance is None else {"throttle_time_ms": allowance.throttle_time_ms}
