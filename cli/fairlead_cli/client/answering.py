"""Which of several brokers answer, found out side by side.

A broker that hangs still takes connections, because the kernel does that for it. So each is asked
for something: ApiVersions, which every broker answers before anything else. librdkafka would find
out too, one address after the other and a time-out each, where a person waits.
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
# A Service may for a moment still lead to a pod that has gone; a new connection is led elsewhere.
SILENT_AGAIN_S = 2.0
# A Service refuses as long as no node's proxy has heard of a pod that is ready; a broker that has
# just become ready may be known a second or two later.
REFUSED_AGAIN_S = 0.5
# A broker hears of a new user from the controller, which may take a moment.
USERS_KNOWN_WITHIN_S = 2.0
# So much longer than the first one may the others take.
GRACE_S = 0.2
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
    """Where a broker listens. An IPv6 address is without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an address did not answer; `may_pass`: the same question may have an answer soon.

    Of what passes within some time, the rest is no use to wait for.
    """

    reason: str
    may_pass: bool = False
    passes_within_s: float = math.inf


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
    """Return those that answer within `patience_s`, and within `grace_s` of the first one that did.

    While none answers, a silent address is asked again every two seconds, on a new connection, and
    one that refuses every half second. A refusal by this very machine is believed at once: no proxy
    stands in between. InputError where the files of the client's settings cannot be used.
    """
    build_context()  # Here, and not first in a thread, whose errors nobody sees.
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
        try:
            address, failure = outcomes.get(timeout=max(0.0, until - now))
        except Empty:
            now = time.monotonic()
            continue
        now = time.monotonic()
        if address not in ask_at:
            continue  # an earlier question had its answer
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
    """In a thread that nobody waits for: a name that is looked up slowly has no time-out."""

    def run() -> None:
        outcomes.put((address, ask(address, timeout_s)))

    start_thread(run)


def ask(address: Address, timeout_s: float) -> Failure | None:
    """None when a broker answers, else why not.

    A name may stand for several brokers, as that of a headless Service does: any of them will do.
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
    """Return what `getaddrinfo` does: IPv4 if there is any, as librdkafka is told, else IPv6.

    OSError if there is neither.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # Of Python's codec for names, for a part that is empty or too long.
        raise OSError("it is no name of a host") from error
    return [each for each in found if each[0] == socket.AF_INET] or found


def ask_host(address: Address, host: str, port: int, timeout_s: float) -> Failure | None:
    """Ask one of the hosts of an address; errors name the address as it was given."""
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
    """Log in behind a reply of which so many bytes are left; None if that may be done or is right.

    librdkafka would keep trying a wrong password for as long as its time-out allows. OSError.
    """
    login = login_settings()
    if login is None:
        return None
    from fairlead_cli.client.login import log_in_as_configured
    from fairlead_cli.wire_exchange import receive_exactly
    from fairlead_wire.errors import RemoteProtocolError
    from fairlead_wire.sasl_login import MECHANISMS, LoginRefusedError

    if login.mechanism not in MECHANISMS:
        return None  # librdkafka knows more of them
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
    """Return whether somebody else may refuse in a broker's name, as a Service does."""
    return not ipaddress.ip_address(host).is_loopback


def start_thread(run: Callable[[], None]) -> None:
    """Start a daemon thread: the process may end while the thread still waits."""
    threading.Thread(target=run, name="ask a broker", daemon=True).start()
