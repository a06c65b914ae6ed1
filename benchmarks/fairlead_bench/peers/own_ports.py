"""Ports for servers of tests and benchmarks, which they keep when they are started again.

The system assigns ports from one range (net.ipv4.ip_local_port_range) to connections, and to
servers that ask for any port. A server with a port in this range may find it in use when it binds
it, or binds it again after a restart. So these ports are outside the range.

They are assigned in blocks. A process has a block while it lives: it holds the block's first port,
which only one process can. All other processes, whoever started them, have other blocks.
"""

import contextlib
import os
import socket
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
# Lower ports are those of services that a machine may have.
LOWEST, HIGHEST = 10_000, 65_535
BLOCK: Final = 500
KEPT_COUNT: Final = 1_000
"""How many others are used before a port is given again. A restarted server must find its port
free, and a client that a test has left behind may look for its cluster there for long. Where no
block is left, a port is given again after fewer."""
FORGOTTEN_AT_ONCE: Final = 20
EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_RANGE_OF_IANA: Final = (49_152, 65_535)


class OwnPorts:
    """The ports of one process."""

    def __init__(self, blocks: Sequence[range]) -> None:
        self._blocks = blocks
        self._owned: list[range] = []
        self._holders: list[int] = []
        self._given: deque[int] = deque(maxlen=KEPT_COUNT)
        self._next = 0

    def take(self, shifts: Sequence[int]) -> int:
        """Return a port that is free, together with the ports at these distances from it."""
        while True:
            for base in self._candidates(max(shifts)):
                wanted = [base + shift for shift in shifts]
                if not set(wanted).intersection(self._given) and all(map(is_free, wanted)):
                    self._given.extend(wanted)
                    self._next = base + 1
                    return base
            if not self._claim():
                self._forget_oldest()

    def release(self) -> None:
        """Free the blocks, which also happens when the process ends."""
        for holder in self._holders:
            os.close(holder)
        self._holders.clear()
        self._owned.clear()

    def _candidates(self, length: int) -> list[int]:
        """Return the ports after the last one, then the others. A block's first port is held."""
        bases = [base for block in self._owned for base in block[1 : len(block) - length]]
        return [b for b in bases if b >= self._next] + [b for b in bases if b < self._next]

    def _claim(self) -> bool:
        for block in self._blocks:
            if block not in self._owned:
                holder = socket.socket()
                try:
                    holder.bind((HOST, block[0]))
                except OSError:
                    holder.close()
                    continue
                self._holders.append(holder.detach())
                self._owned.append(block)
                return True
        return False

    def _forget_oldest(self) -> None:
        if not self._given:
            count = len(self._blocks)
            raise RuntimeError(f"none of {count} blocks of ports is left for this process")
        for _ in range(min(FORGOTTEN_AT_ONCE, len(self._given))):
            self._given.popleft()


def is_free(port: int) -> bool:
    """Tell whether a server could bind the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return True
    return False


def read_ephemeral_range() -> tuple[int, int]:
    """Return the first and the last port that the system assigns to connections."""
    try:
        first, last = map(int, EPHEMERAL_RANGE.read_text().split())
    except OSError:
        return EPHEMERAL_RANGE_OF_IANA
    return first, last


def lay_out_blocks(ephemeral: tuple[int, int]) -> list[range]:
    """Return all blocks outside of that range; all blocks if there are none."""
    first, last = ephemeral
    blocks = [range(at, at + BLOCK) for at in range(LOWEST, HIGHEST - BLOCK, BLOCK)]
    outside = [block for block in blocks if block[-1] < first or block[0] > last]
    return outside or blocks


_of_process: dict[int, OwnPorts] = {}


def take_base(shifts: Sequence[int]) -> int:
    """Return a port that, with the ports at these distances, belongs to this process."""
    # A forked child has its parent's holders, but not its ports.
    if os.getpid() not in _of_process:
        _of_process[os.getpid()] = OwnPorts(lay_out_blocks(read_ephemeral_range()))
    return _of_process[os.getpid()].take(shifts)


def take_ports(count: int) -> list[int]:
    """Return `count` ports of this process."""
    base = take_base(range(count))
    return list(range(base, base + count))
