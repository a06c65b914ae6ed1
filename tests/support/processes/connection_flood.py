"""A process that floods a port with connections: `python connection_flood.py HOST:PORT COUNT HEX`.

It opens COUNT connections, each of which sends the bytes HEX and then nothing more. It prints a
line once all are open. With COUNT 0 it goes on forever, and opens another connection for each that
was closed, seven hundred at a time.
"""

import errno
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AT_ONCE = 700


@contextmanager
def flood(address: str, count: int, greeting: bytes = b"") -> Iterator[subprocess.Popen[str]]:
    """Flood a port until the end of the block."""
    command = [sys.executable, str(Path(__file__)), address, str(count), greeting.hex()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def connect(address: tuple[str, int], greeting: bytes) -> socket.socket:
    sock = socket.create_connection(address, timeout=60)
    sock.sendall(greeting)
    return sock


def connect_again_and_again(address: tuple[str, int], greeting: bytes) -> None:
    """Keep this number of connections open."""
    selector = selectors.DefaultSelector()
    is_said = False
    while True:
        while len(selector.get_map()) < AT_ONCE:
            sock = socket.socket()
            sock.setblocking(False)
            if sock.connect_ex(address) not in (0, errno.EINPROGRESS):
                sock.close()
                break
            selector.register(sock, selectors.EVENT_WRITE)
        if not is_said:
            is_said = True
            print("ready", flush=True)
        for key, events in selector.select(0.1):
            sock = key.fileobj  # type: ignore[assignment]
            try:
                if events & selectors.EVENT_WRITE:
                    sock.sendall(greeting)
                    selector.modify(sock, selectors.EVENT_READ)
                elif not sock.recv(4096):
                    raise ConnectionResetError
            except OSError:
                selector.unregister(sock)
                sock.close()


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    address, count = (host, int(port)), int(sys.argv[2])
    greeting = bytes.fromhex(sys.argv[3]) if len(sys.argv) > 3 else b""
    if not count:
        connect_again_and_again(address, greeting)
    sockets = [connect(address, greeting) for _ in range(count)]
    print("ready", flush=True)
    while sockets:
        selectors.DefaultSelector().select(None)


if __name__ == "__main__":
    main()
