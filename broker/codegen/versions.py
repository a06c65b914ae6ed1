"""Version ranges in the format of the definitions: `3`, `0-12`, `9+`, `none`."""

from dataclasses import dataclass
from typing import Final, Self

VERSION_MAX: Final = 32767


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions `low` to `high`, both inclusive; empty if low > high."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str | None) -> Self:
        if text is None or text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    @property
    def is_empty(self) -> bool:
        return self.low > self.high

    def __and__(self, other: "VersionRange") -> "VersionRange":
        return VersionRange(max(self.low, other.low), min(self.high, other.high))

    def covers(self, window: "VersionRange") -> bool:
        return self.low <= window.low and window.high <= self.high

    def condition(self, window: "VersionRange") -> str | None:
        """Return the test for this range within `window`: "" for always, None for never."""
        inside = self & window
        if inside.is_empty:
            return None
        if inside == window:
            return ""
        if inside.high == window.high:
            return f"version >= {inside.low}"
        if inside.low == window.low:
            return f"version <= {inside.high}"
        return f"{inside.low} <= version <= {inside.high}"
