"""Requests and replies over one connection, which ends if a reply does not come in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from simulator.network import End, Network
    from simulator.virtual_loop import Process

Reply = dict[str, Any]
OnReply = "Callable[[Reply | None], None]"


class Client:
    """One process's connection to one host, opened when needed.

    `on_reply` gets the reply, or None if the connection was lost or the time was up: the request
    may have been done, or may still be under way.
    """

    def __init__(self, network: Network, process: Process, host: str) -> None:
        self.host = host
        self._network = network
        self._process = process
        self._end: End | None = None
        self._waiting: dict[int, tuple[Callable[[Reply | None], None], asyncio.TimerHandle]] = {}
        self._next = 0

    def call(
        self,
        method: str,
        body: dict[str, Any],
        on_reply: Callable[[Reply | None], None],
        *,
        timeout_s: float,
    ) -> None:
        if self._end is None or self._end.is_closed:
            end = self._network.connect(self._process, self.host)
            end.on_message = self._on_message
            end.on_close = self.drop
            self._end = end
        number, self._next = self._next, self._next + 1
        timer = self._process.call_later(timeout_s, self._on_timeout, number)
        self._waiting[number] = (on_reply, timer)
        self._end.send((number, method, body))

    def drop(self) -> None:
        """Close; all waiting callers get an unknown outcome."""
        if self._end is not None:
            self._end.close()
            self._end = None
        waiting, self._waiting = self._waiting, {}
        for on_reply, timer in waiting.values():
            timer.cancel()
            on_reply(None)

    def _on_timeout(self, number: int) -> None:
        if number in self._waiting:
            self.drop()

    def _on_message(self, message: Any) -> None:
        number, body = message
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting[1].cancel()
            waiting[0](body)


class Request:
    """One request at its server, which answers once, at any time."""

    __slots__ = ("_end", "_number", "body", "is_answered", "method")

    def __init__(self, end: End, message: Any) -> None:
        self._end = end
        self._number, self.method, self.body = message
        self.is_answered = False

    @property
    def client(self) -> str:
        return self._end.peer_host

    def answer(self, **body: Any) -> None:
        if not self.is_answered:
            self.is_answered = True
            self._end.send((self._number, body))
