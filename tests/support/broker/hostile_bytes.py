"""Damage for frames, and a client that sends them."""

import errno
import random
import socket
import struct

from waiting import DEADLINE_S


def mutate(frame: bytes, chance: random.Random) -> bytes:
    """Return the frame with one kind of damage."""
    data = bytearray(frame)
    match chance.randrange(9):
        case 0:
            return bytes(data[: chance.randrange(len(data))])
        case 1:
            for _ in range(chance.randrange(1, 9)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case 2:
            position = chance.randrange(4, len(data) - 3)
            data[position : position + 4] = struct.pack(
                ">i", chance.choice((0x7FFFFFFF, -1, -2, 1 << 24, -(1 << 31)))
            )
        case 3:
            position = chance.randrange(4, len(data))
            data[position:position] = b"\xff\xff\xff\xff\x0f"
            data[:4] = struct.pack(">i", len(data) - 4)
        case 4:
            data[:4] = struct.pack(
                ">i", chance.choice((-1, 0, 7, 8, 9, len(data), 0x7FFFFFFF, 100 << 20, -(1 << 31)))
            )
        case 5:
            data[4:8] = struct.pack(">hh", chance.randrange(-5, 120), chance.randrange(-2, 25))
        case 6:
            size = chance.randrange(len(data))
            return struct.pack(">i", size) + chance.randbytes(size)
        case 7:
            return chance.randbytes(chance.randrange(1, 4000))
        case _:
            cut = chance.randrange(8, len(data))
            del data[cut : cut + chance.randrange(1, 40)]
            data[:4] = struct.pack(">i", len(data) - 4)
    return bytes(data)


def provoke(port: int, data: bytes) -> int:
    """Send, shut down sending, read to the end; return how many bytes came back."""
    received = 0
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(1 << 16):
                received += len(piece)
        except ConnectionError:
            return received
        except OSError as error:
            # The other end has closed first: there is nothing to shut down.
            if error.errno != errno.ENOTCONN:
                raise
    return received
