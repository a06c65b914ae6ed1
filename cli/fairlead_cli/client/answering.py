"""Which of several brokers answer, found out side by side.

A broker that hangs still takes connections, because the kernel does that for it. So each is asked
for something: ApiVersions, which every broker answers before anything else. librdkafka would find
out too, one address after the other and a time-out each, where a person waits.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

PATIENCE_S = 8.0
# A Service may for a moment still lead to a pod that has gone; a new connection is led elsewhere.
ASK_AGAIN_S = 2.0
# So much longer than the first one may the others take.
GRACE_S = 0.2
ADDRESSES_OF_A_NAME_MAX = 16
# ApiVersions v0: key 18, version 0, correlation id 1, no client id.
REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
REPLY_HEAD = struct.Struct(">ii")
NOT_KAFKA = "does not speak Kafka's protocol there, or only behind TLS, which this command lacks"


class Address(NamedTuple):
    """Where a broker listens. An IPv6 address may have its brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answers:
    """`reasons`: why each of the others is not among `answering`."""

    answering: tuple[Address, ...]
    reasons: dict[Address, str]

    @property
    def reason(self) -> str:
        """All of them, in words."""
        return "; ".join(self.reasons.values()) or "no address"


def find_answering(
    addresses: Collection[Address], *, patience_s: float = PATIENCE_S, grace_s: float = GRACE_S
) -> Answers:
    """Those that answer within `patience_s`, and within `grace_s` of the first one that did.

    An address that refuses is believed at once; while none answers, the silent ones are asked again
    every two seconds, on new connections.
    """
    outcomes: SimpleQueue[tuple[Address, str | None]] = SimpleQueue()
    waiting = dict.fromkeys(addresses)
    answering: list[Address] = []
    reasons: dict[Address, str] = {}
    began = now = time.monotonic()
    deadline, next_round = now + patience_s, now
    while waiting and now < deadline:
        if now >= next_round and not answering:
            for address in waiting:
                ask_aside(address, deadline - now, outcomes)
            next_round += ASK_AGAIN_S
        until = deadline if answering else min(deadline, next_round)
        try:
            address, failure = outcomes.get(timeout=max(0.0, until - now))
        except Empty:
            now = time.monotonic()
            continue
        now = time.monotonic()
        if address not in waiting:
            continue  # an earlier question had its answer
        del waiting[address]
        if failure is None:
            answering.append(address)
            deadline = min(deadline, now + grace_s)
        else:
            reasons[address] = failure
    for address in waiting:
        reasons[address] = f"{address} did not answer within {now - began:.1f} s"
    return Answers(tuple(answering), reasons)


def ask_aside(
    address: Address, timeout_s: float, outcomes: SimpleQueue[tuple[Address, str | None]]
) -> None:
    """In a thread that nobody waits for: a name that is looked up slowly has no time-out."""

    def run() -> None:
        outcomes.put((address, ask(address, timeout_s)))

    start_thread(run)


def ask(address: Address, timeout_s: float) -> str | None:
    """None when a broker answers, else why not.

    A name may stand for several brokers, as that of a headless Service does: any of them will do.
    """
    try:
        # The family that librdkafka is told to use, too.
        family = socket.AF_UNSPEC if "[" in address.host else socket.AF_INET
        found = socket.getaddrinfo(
            address.host.strip("[]"), address.port, family, socket.SOCK_STREAM
        )
    except OSError as error:
        return f"{address}: {error.strerror or error}"
    outcomes: SimpleQueue[str | None] = SimpleQueue()
    for _family, _type, _protocol, _name, where in found[:ADDRESSES_OF_A_NAME_MAX]:

        def run(host: str = str(where[0]), port: int = int(where[1])) -> None:
            outcomes.put(ask_host(address, host, port, timeout_s))

        start_thread(run)
    failures = []
    for _ in found[:ADDRESSES_OF_A_NAME_MAX]:
        failure = outcomes.get()
        if failure is None:
            return None
        failures.append(failure)
    return failures[0]


def ask_host(address: Address, host: str, port: int, timeout_s: float) -> str | None:
    """The same for one of the hosts of an address, which is named as it was given."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(REQUEST)
            head = b""
            while len(head) < REPLY_HEAD.size:
                part = connection.recv(REPLY_HEAD.size - len(head))
                if not part:
                    return f"{address} {NOT_KAFKA}"
                head += part
    except TimeoutError:
        return f"{address} did not answer within {timeout_s:.0f} s"
    except OSError as error:
        return f"{address}: {error.strerror or error}"
    _, correlation_id = REPLY_HEAD.unpack(head)
    return None if correlation_id == 1 else f"{address} {NOT_KAFKA}"


def start_thread(run: Callable[[], None]) -> None:
    """A daemon: the process may end while it still waits."""
    threading.Thread(target=run, name="ask a broker", daemon=True).start()
