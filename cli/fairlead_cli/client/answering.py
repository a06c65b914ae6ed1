"""Find out which of several brokers answer, all at the same time.

The kernel accepts connections even for a broker that hangs. So each broker gets an ApiVersions
request, which a broker answers before any other. librdkafka would try one address after the other,
with a time-out for each, while the user waits.
"""

from __future__ import annotations

import ipaddress
import math
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlead_cli.client.access import build_context, is_tls, login_settings, wrap
from fairlead_model.host_address import join_address

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

PATIENCE_S = 8.0
# A Service may still route to a pod that is gone; a new connection is routed to another one.
SILENT_AGAIN_S = 2.0
# A Service refuses connections until a node's proxy knows of a ready pod, which may take a second
# or two after the broker has become ready.
REFUSED_AGAIN_S = 0.5
# A broker learns of a new user from the controller, which may take a moment.
USERS_KNOWN_WITHIN_S = 2.0
# How much longer than the first answer the others may take.
GRACE_S = 0.2
# Time in which this process itself had no processor is not counted. It looks so often.
LOOK_S = 0.25
ADDRESSES_OF_A_NAME_MAX = 16
# ApiVersions v0: key 18, version 0, correlation id 1, no client id.
REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
REPLY_HEAD = struct.Struct(">ii")
NOT_KAFKA = (
    "does not speak Kafka's protocol there, or only over TLS, for which --client-config FILE says "
    "how to log in"
)
NO_TLS = "does not speak TLS there, as security.protocol of the client's settings has it"


class Address(NamedTuple):
    """The address of a broker. An IPv6 address has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an address did not answer. `may_pass`: a later attempt may succeed.

    After `passes_within_s` a success can no longer be expected, so no attempt follows.
    """

    reason: str
    may_pass: bool = False
    passes_within_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Answers:
    """The addresses that answer. `reasons`: why each of the others does not."""

    answering: tuple[Address, ...]
    reasons: dict[Address, str]

    @property
    def reason(self) -> str:
        """Return all reasons, in words."""
        return "; ".join(self.reasons.values()) or "no address"


def find_answering(
    addresses: Collection[Address], *, patience_s: float = PATIENCE_S, grace_s: float = GRACE_S
) -> Answers:
    """Return the addresses that answer within `patience_s`, and `grace_s` after the first answer.

    While none answers, a silent address is tried again every two seconds, on a new connection, and
    a refusing one every half second. A refusal by this machine is final: there is no proxy between.
    InputError if the files in the client's settings cannot be used.
    """
    build_context()  # Here first, because nobody would see an error of a thread.
    outcomes: SimpleQueue[tuple[Address, Failure | None]] = SimpleQueue()
    began = now = time.monotonic()
    deadline = now + patience_s
    ask_at = dict.fromkeys(addresses, now)
    answering: list[Address] = []
    reasons: dict[Address, str] = {}
    while ask_at and now < deadline:
        if not answering:
            for address, at in ask_at.items():
                if at <= now:
                    ask_aside(address, deadline - now, outcomes)
                    ask_at[address] = now + SILENT_AGAIN_S
        until = deadline if answering else min(deadline, *ask_at.values())
        wait_s = min(max(0.0, until - now), LOOK_S)
        asked_at = now
        try:
            address, failure = outcomes.get(timeout=wait_s)
        except Empty:
            now = time.monotonic()
            overslept_s = now - asked_at - wait_s
            deadline += overslept_s if overslept_s > LOOK_S else 0.0
            continue
        now = time.monotonic()
        if address not in ask_at:
            continue  # An earlier attempt has succeeded.
        if failure is None:
            answering.append(address)
            deadline = min(deadline, now + grace_s)
        else:
            reasons[address] = failure.reason
            if failure.may_pass and now - began < failure.passes_within_s:
                ask_at[address] = now + REFUSED_AGAIN_S
                continue
        del ask_at[address]
    for address in ask_at:
        reasons.setdefault(address, f"{address} did not answer within {now - began:.1f} s")
    for address in answering:
        reasons.pop(address, None)
    return Answers(tuple(answering), reasons)


def ask_aside(
    address: Address, timeout_s: float, outcomes: SimpleQueue[tuple[Address, Failure | None]]
) -> None:
    """Run `ask` in a thread that nobody waits for: slow name resolution has no time-out."""

    def run() -> None:
        outcomes.put((address, ask(address, timeout_s)))

    start_thread(run)


def ask(address: Address, timeout_s: float) -> Failure | None:
    """Return None if a broker answers, else why not.

    A name may stand for several brokers, as for a headless Service: any of them is enough.
    """
    try:
        found = look_up(address.host, address.port)
    except OSError as error:
        return Failure(f"{address}: {error.strerror or error}")
    outcomes: SimpleQueue[Failure | None] = SimpleQueue()
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


def look_up(host: str, port: int) -> list[Any]:
    """Return the result of `getaddrinfo`: IPv4 addresses if there are any (as for librdkafka).

    Else IPv6 addresses; OSError if there are none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # Python's codec for names raises this if a part is empty or too long.
        raise OSError("it is no name of a host") from error
    return [each for each in found if each[0] == socket.AF_INET] or found


def ask_host(address: Address, host: str, port: int, timeout_s: float) -> Failure | None:
    """Try one host of an address; errors quote the address as the user gave it."""
    try:
        with (
            socket.create_connection((host, port), timeout=timeout_s) as plain,
            wrap(plain, address.host) as connection,
        ):
            connection.sendall(REQUEST)
            head = b""
            while len(head) < REPLY_HEAD.size:
                part = connection.recv(REPLY_HEAD.size - len(head))
                if not part:
                    return Failure(f"{address} {NOT_KAFKA}")
                head += part
            size, correlation_id = REPLY_HEAD.unpack(head)
            if correlation_id != 1:
                return Failure(f"{address} {NOT_KAFKA}")
            return log_in_after(connection, size - 4, address)
    except TimeoutError:
        return Failure(f"{address} did not answer within {timeout_s:.0f} s")
    except ConnectionRefusedError as error:
        return Failure(f"{address}: {error.strerror}", may_pass=may_be_a_proxy(host))
    except ssl.SSLCertVerificationError as error:
        return Failure(f"{address} has a certificate that is refused: {error.verify_message}")
    except (ssl.SSLError, ConnectionResetError) as error:
        reason = error.strerror or str(error)
        return Failure(f"{address} {NO_TLS}" if is_tls() else f"{address}: {reason}")
    except OSError as error:
        return Failure(f"{address}: {error.strerror or error}")


def log_in_after(connection: socket.socket, size: int, address: Address) -> Failure | None:
    """Read the rest (`size` bytes) of a reply, and log in; None if that is right, or not needed.

    With a wrong password, librdkafka would retry until its time-out. OSError.
    """
    login = login_settings()
    if login is None:
        return None
    from fairlead_cli.client.login import log_in_as_configured
    from fairlead_cli.wire_exchange import receive_exactly
    from fairlead_wire.errors import RemoteProtocolError
    from fairlead_wire.sasl_login import MECHANISMS, LoginRefusedError

    if login.mechanism not in MECHANISMS:
        return None  # librdkafka supports more mechanisms.
    try:
        receive_exactly(connection, size)
        log_in_as_configured(connection)
    except (EOFError, RemoteProtocolError) as error:
        return Failure(f"{address} ends the login: {error}")
    except LoginRefusedError as error:
        return Failure(
            f"{address} refuses the login: {str(error).rstrip('.')}", True, USERS_KNOWN_WITHIN_S
        )
    return None


def may_be_a_proxy(host: str) -> bool:
    """Tell whether a proxy may refuse a connection in place of a broker, as a Service does."""
    return not ipaddress.ip_address(host).is_loopback


def start_thread(run: Callable[[], None]) -> None:
    """Start a daemon thread: the process may end while the thread still waits."""
    threading.Thread(target=run, name="ask a broker", daemon=True).start()
