"""Connections whose peers have not authenticated yet: how many, for how long, which are closed.

A new connection is always accepted. If there are too many, the oldest is closed: of the same
address if that has too many, else of the address with the most connections. So a flood displaces
its own connections, and a peer that authenticates within some round trips gets through. Pure; the
caller, which has the port, closes the connections that are returned.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)


class UnprovedPeers(Generic[Peer]):
    """The unauthenticated peers of one port, each from its arrival until `discard`."""

    def __init__(self, *, total_max: int, per_address_max: int, patience_s: float) -> None:
        """`patience_s` is how long a peer may take to authenticate."""
        self._total_max = total_max
        self._per_address_max = per_address_max
        self._patience_s = patience_s
        self._arrivals: dict[Peer, tuple[str, float]] = {}
        self._by_address: dict[str, dict[Peer, None]] = {}

    def __len__(self) -> int:
        return len(self._arrivals)

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._arrivals

    def add(self, peer: Peer, address: str, now_s: float) -> Peer | None:
        """Add a new peer; return the peer that must be closed for it, which is removed here."""
        leaving = self._choose_leaving(address)
        if leaving is not None:
            self.discard(leaving)
        self._arrivals[peer] = (address, now_s)
        self._by_address.setdefault(address, {})[peer] = None
        return leaving

    def take_oldest(self) -> Peer | None:
        """Remove and return the oldest peer of the address with the most, to make room."""
        if not self._arrivals:
            return None
        oldest = self._oldest_of_crowd()
        self.discard(oldest)
        return oldest

    def discard(self, peer: Peer) -> None:
        """Remove a peer that has authenticated, or is gone."""
        arrival = self._arrivals.pop(peer, None)
        if arrival is None:
            return
        neighbours = self._by_address[arrival[0]]
        del neighbours[peer]
        if not neighbours:
            del self._by_address[arrival[0]]

    def take_overdue(self, now_s: float) -> list[Peer]:
        """Remove and return the peers that have taken too long."""
        overdue = []
        for peer, (_, since_s) in self._arrivals.items():
            if now_s - since_s < self._patience_s:
                break
            overdue.append(peer)
        for peer in overdue:
            self.discard(peer)
        return overdue

    def _choose_leaving(self, address: str) -> Peer | None:
        neighbours = self._by_address.get(address, {})
        if len(neighbours) >= self._per_address_max:
            return next(iter(neighbours))
        if len(self._arrivals) >= self._total_max:
            return self._oldest_of_crowd()
        return None

    def _oldest_of_crowd(self) -> Peer:
        crowded = max(self._by_address, key=lambda each: len(self._by_address[each]))
        return next(iter(self._by_address[crowded]))
