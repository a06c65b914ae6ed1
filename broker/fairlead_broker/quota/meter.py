"""The rate of a client in sliding windows, and how long it has to wait if that is too high. Pure.

As Kafka's `Rate` over a `WindowedSum`: what was used in the last windows, the present one among
them, over the time that these took. The windows before the first use count as quiet ones, so who
was quiet may use what the limit gives in all windows but one at once. The windows of all meters
begin at the same times, where those of Kafka begin with a use.
"""

from __future__ import annotations

from typing import NamedTuple

from fairlead_model.security.client_quota import throttle_time_ms


class Windows(NamedTuple):
    """`quota.window.num` and `quota.window.size.seconds`."""

    number: int
    size_ms: int

    @property
    def burst_s(self) -> float:
        """Seconds of a rate that may be used at once after a quiet time."""
        return max(self.number - 1, 1) * self.size_ms / 1000


class Meter:
    """The use of a quota by one client or by several that share it. The limit is for one second.

    Amounts are never negative, but for those that are taken back in the window of their charge.
    """

    __slots__ = ("_amounts", "_held_limit", "_held_until_ms", "_size_ms", "_window", "limit")

    def __init__(self, limit: float, windows: Windows, now_ms: int) -> None:
        self.limit = limit
        self._amounts = [0.0] * windows.number
        self._size_ms = windows.size_ms
        self._window = now_ms // windows.size_ms
        self._held_limit = limit
        self._held_until_ms = now_ms

    def charge(self, amount: float, now_ms: int) -> None:
        """Count something that is used now; less than nothing takes back what was charged now."""
        self._pass_to(now_ms)
        self._amounts[self._window % len(self._amounts)] += amount

    def rate(self, now_ms: int) -> float:
        """Return what was used a second."""
        self._pass_to(now_ms)
        return sum(self._amounts) * 1000 / self._elapsed_ms(now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Return how long nothing may be used for the rate to be the limit, 0 if it is not above.

        See `QuotaUtils.throttleTime`: the time that the windows took, by what is above the limit,
        and at most what anybody is told to wait.
        """
        rate = self.rate(now_ms)
        if rate <= self.limit:
            return 0
        return throttle_time_ms((rate - self.limit) / self.limit * self._elapsed_ms(now_ms))

    def hold(self, now_ms: int) -> None:
        """Begin the time for which whoever has no connection that could be muted is refused."""
        self._held_limit = self.limit
        self._held_until_ms = max(self._held_until_ms, now_ms + self.throttle_ms(now_ms))

    def held_ms(self, now_ms: int) -> int:
        """Return how much of that time is left. Another limit makes it another time."""
        if self._held_limit != self.limit:
            self._held_until_ms = now_ms
            self.hold(now_ms)
        return max(self._held_until_ms - now_ms, 0)

    def is_quiet(self, now_ms: int) -> bool:
        """Tell whether nothing was used in any window: another meter would say the same."""
        self._pass_to(now_ms)
        return self._held_until_ms <= now_ms and not any(self._amounts)

    def _elapsed_ms(self, now_ms: int) -> int:
        size_ms = self._size_ms
        in_this_window_ms = now_ms - self._window * size_ms
        return max((len(self._amounts) - 1) * size_ms + in_this_window_ms, size_ms)

    def _pass_to(self, now_ms: int) -> None:
        window = now_ms // self._size_ms
        amounts = self._amounts
        for passed in range(max(self._window + 1, window - len(amounts) + 1), window + 1):
            amounts[passed % len(amounts)] = 0.0
        self._window = max(self._window, window)
