"""The network: connections that keep order, delay, stall behind a cut, and break.

As with TCP between hosts, nothing is lost or reordered within a connection. A cut only stalls it
(the kernel retransmits), and the stalled data arrives when the cut heals, however late, unless an
end has closed. Different connections do not wait for each other: the retry of a request may arrive
before the request. A killed process resets its connections; a host without power does not answer,
and its peers notice by their own time-outs or when it is back.
"""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from simulator.virtual_loop import Process, VirtualLoop

FAST_S = (0.0002, 0.001)
SLOW_S = (0.001, 0.12)
CONNECT_TIMEOUT_S = 2.0


class End:
    """One process's end of a connection."""

    def __init__(
        self,
        network: Network,
        process: Process,
        peer_host: str,
        purpose: str = "",
        *,
        is_accepted: bool = False,
    ) -> None:
        self.network = network
        self.process = process
        self.peer_host = peer_host
        self.purpose = purpose
        """The purpose of the connection, from the process that opened it."""
        self.is_accepted = is_accepted
        self.peer: End | None = None
        self.is_closed = False
        self.on_message: Callable[[Any], None] = lambda _: None
        self.on_close: Callable[[], None] = lambda: None
        self.is_held = False
        """Messages that are sent here arrive late, as after repeated packet loss."""
        self._stalled: list[Callable[[], None]] = []
        self._last_arrival_s = 0.0

    def send(self, message: Any) -> None:
        """Send a message; it is silently lost if the connection has ended."""
        if not self.is_closed:
            if self.network.traps:
                self.network.spring(self, message)
            self._travel(lambda: self._deliver(message))

    def close(self) -> None:
        """Close cleanly; the peer notices after all earlier messages."""
        if not self.is_closed:
            self.is_closed = True
            self._travel(self._deliver_close)

    def vanish(self) -> None:
        """End without telling the peer."""
        self.is_closed = True

    def _travel(self, arrive: Callable[[], None]) -> None:
        if self.network.is_over:
            return
        loop = self.network.loop
        delay_s = self.network.delay_s(self.process.name, self.peer_host)
        self._last_arrival_s = max(self._last_arrival_s, loop.time() + delay_s)
        loop.call_at(self._last_arrival_s, self._on_arrival, arrive, context=self.network.context)

    def _on_arrival(self, arrive: Callable[[], None]) -> None:
        if self._stalled or self.is_held or self.network.is_cut(self.process.name, self.peer_host):
            self._stalled.append(arrive)
            self.network.stalled[self] = None
        else:
            arrive()

    def heal(self) -> None:
        """Deliver what had stalled."""
        stalled, self._stalled = self._stalled, []
        for arrive in stalled:
            arrive()

    def _deliver(self, message: Any) -> None:
        peer = self.peer
        if peer is None:
            return
        if peer.is_closed or not peer.process.is_alive:
            if not peer.process.is_alive and self.network.is_dark(self.peer_host):
                return
            # The other host's kernel answers if the process is gone.
            peer.is_closed = True
            peer._travel(peer._deliver_close)
            return
        peer.process.call_soon(peer._receive, message)

    def _receive(self, message: Any) -> None:
        if not self.is_closed:
            self.on_message(message)

    def _deliver_close(self) -> None:
        peer = self.peer
        if peer is not None and not peer.is_closed and peer.process.is_alive:
            peer.process.call_soon(peer._receive_close)

    def _receive_close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.on_close()


class Trap(NamedTuple):
    """Waits for a message to be sent, and then does something to its connection."""

    is_meant: Callable[[End, Any], bool]
    on_message: Callable[[End], None]


class Network:
    """Connections and cuts between hosts. Hosts have the names of their processes."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.context = Context()
        self.is_over = False
        self.stalled: dict[End, None] = {}
        self._listening: dict[str, tuple[Process, Callable[[End], None]]] = {}
        self._ends: dict[Process, list[End]] = {}
        self.traps: list[Trap] = []
        self._cuts: set[tuple[str, str]] = set()
        self._slow: set[str] = set()
        self._dark: set[str] = set()

    def listen(self, process: Process, accept: Callable[[End], None]) -> None:
        """Let others connect to a process, by its name."""
        self._listening[process.name] = (process, accept)
        self._dark.discard(process.name)

    def connect(self, process: Process, host: str, purpose: str = "") -> End:
        """Open a connection; messages that are sent at once arrive with it.

        There is no handshake: a refusal arrives as a close.
        """
        near, far = End(self, process, host, purpose), None
        self._ends.setdefault(process, []).append(near)
        listening = self._listening.get(host)
        if listening is not None and listening[0].is_alive:
            server, accept = listening
            far = End(self, server, process.name, purpose, is_accepted=True)
            near.peer, far.peer = far, near
            self._ends.setdefault(server, []).append(far)
            server.call_soon(accept, far)
        elif host not in self._dark:
            refusing = End(self, process, process.name)
            refusing.peer = near
            refusing._travel(refusing._deliver_close)
        return near

    def is_refused(self, host: str, asking: str) -> bool:
        """Tell whether a probe is refused: the host is reachable and up, and nobody listens."""
        if self.is_cut(asking, host) or self.is_cut(host, asking) or host in self._dark:
            return False
        listening = self._listening.get(host)
        return listening is None or not listening[0].is_alive

    def end_process(self, process: Process, *, dark: bool) -> None:
        """End a process's connections; `dark`: with its whole host."""
        if dark:
            self._dark.add(process.name)
        for end in self._ends.pop(process, ()):
            if end.is_closed:
                continue
            if dark:
                end.vanish()
            else:
                end.close()

    def reset(self, process: Process) -> None:
        """Break all connections of a process that goes on."""
        for end in self._ends.get(process, ()):
            if end.peer is not None and not end.is_closed:
                end._travel(end._deliver_close)
                end.peer._travel(end.peer._deliver_close)

    def light(self, host: str) -> None:
        """Turn a host on again: connections to the old process are reset."""
        self._dark.discard(host)
        for ends in self._ends.values():
            for end in ends:
                is_waiting = end.peer_host == host and not end.is_closed
                if is_waiting and end.peer is not None and not end.peer.process.is_alive:
                    end.peer._travel(end.peer._deliver_close)

    def cut(self, source: str, target: str) -> None:
        self._cuts.add((source, target))

    def heal(self, source: str, target: str) -> None:
        self._cuts.discard((source, target))
        stalled = [
            end for end in self.stalled if (end.process.name, end.peer_host) == (source, target)
        ]
        for end in stalled:
            if not end.is_held:
                del self.stalled[end]
                end.heal()

    def spring(self, end: End, message: Any) -> None:
        """Call the traps that wait for such a message; each is called once."""
        for trap in list(self.traps):
            if trap.is_meant(end, message):
                self.traps.remove(trap)
                trap.on_message(end)

    def hold(self, is_meant: Callable[[End], bool]) -> Callable[[], None]:
        """Delay messages on some present connections; the result, when called, delivers them.

        Clients that time out use a new connection, which is fast: so earlier messages arrive after
        later ones, and after their sender is gone.
        """
        return self.hold_ends(
            [end for ends in self._ends.values() for end in ends if is_meant(end)]
        )

    def hold_ends(self, ends: list[End]) -> Callable[[], None]:
        """Delay messages on these connections, as `hold` does."""
        held = [end for end in ends if not (end.is_held or end.is_closed)]
        for end in held:
            end.is_held = True

        def release() -> None:
            for end in held:
                end.is_held = False
                if not self.is_cut(end.process.name, end.peer_host):
                    self.stalled.pop(end, None)
                    end.heal()

        return release

    def heal_all(self) -> None:
        for source, target in sorted(self._cuts):
            self.heal(source, target)
        self._slow.clear()

    def slow_down(self, host: str) -> None:
        self._slow.add(host)

    def speed_up(self, host: str) -> None:
        self._slow.discard(host)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def is_dark(self, host: str) -> bool:
        return host in self._dark

    def delay_s(self, source: str, target: str) -> float:
        low, high = SLOW_S if source in self._slow or target in self._slow else FAST_S
        return low + (high - low) * self.rng.random()
