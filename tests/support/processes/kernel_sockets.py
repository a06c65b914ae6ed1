"""The kernel's information about a TCP connection of any process, as `ss -tm` shows it.

It needs no special right and no tool (sock_diag(7)).
"""

import socket
import struct
from typing import NamedTuple

SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
INET_DIAG_SKMEMINFO = 7
ALL_STATES = 0xFFFFFFFF
NO_COOKIE = 0xFFFFFFFF
HEADER = struct.Struct("=IHHII")
REQUEST = struct.Struct("=BBBxI")
SOCKET_ID = struct.Struct("!HH4s12x4s12x")
ANSWER_BYTES = 72
ATTRIBUTE = struct.Struct("=HH")
ALIGNMENT = 4
WINDOW_SCALES_AT = 6
"""Two bit fields of `struct tcp_info`."""

Address = tuple[str, int]


class BufferSizes(NamedTuple):
    """SO_RCVBUF and SO_SNDBUF, as getsockopt in the owner returns them: twice what was set."""

    receive: int
    send: int


def read_buffer_sizes(local: Address, peer: Address) -> BufferSizes:
    """Ask about the IPv4 socket of this machine that is connected from `local` to `peer`."""
    ports = SOCKET_ID.pack(local[1], peer[1], socket.inet_aton(local[0]), socket.inet_aton(peer[0]))
    request = (
        REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 1 << (INET_DIAG_SKMEMINFO - 1), ALL_STATES)
        + ports
        + struct.pack("=III", 0, NO_COOKIE, NO_COOKIE)
    )
    header = HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as netlink:
        netlink.sendall(header + request)
        answer = netlink.recv(1 << 16)
    length, kind, *_ = HEADER.unpack_from(answer)
    assert kind == SOCK_DIAG_BY_FAMILY, f"the kernel knows no connection from {local} to {peer}"
    at = HEADER.size + ANSWER_BYTES
    while at < length:
        size, name = ATTRIBUTE.unpack_from(answer, at)
        if name == INET_DIAG_SKMEMINFO:
            _, receive, _, send = struct.unpack_from("=IIII", answer, at + ATTRIBUTE.size)
            return BufferSizes(receive, send)
        at += -(-size // ALIGNMENT) * ALIGNMENT
    raise AssertionError("the kernel tells no buffers")


def read_window_scales(sock: socket.socket) -> int:
    """Return the window scales that both ends negotiated in the first two packets."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)[WINDOW_SCALES_AT]
