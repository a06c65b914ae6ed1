"""A proxy between a client and a ZooKeeper server that loses or delays their messages.

It serves one or several connections, with two threads for each. It passes on held requests later,
in order, even after the client has closed the connection: such a request lands late.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

HOST = "127.0.0.1"


class ZooKeeperProxy:
    """Listens until `stop`; give a client its `address`."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listening = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listening.getsockname()[1]}"
        self._requests_pass = threading.Event()
        self._requests_pass.set()
        self._drops_replies = False
        self._refuses = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def hold_requests(self) -> None:
        """Hold what clients send from now on."""
        self._requests_pass.clear()

    def pass_requests(self) -> None:
        """Pass on what was held, and all that follows."""
        self._requests_pass.set()

    def drop_replies(self) -> None:
        """Lose what the server sends from now on, on the present connections."""
        self._drops_replies = True

    def cut(self) -> None:
        """End the clients' connections; new ones have no faults. Held requests land later."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        self._drops_replies = False
        for client, _ in pairs:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """End all connections, and refuse new ones."""
        self._refuses = True
        self.cut()

    def accept(self) -> None:
        """Let clients connect again."""
        self._refuses = False

    def stop(self) -> None:
        self._refuses = True
        self._requests_pass.set()
        self.cut()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self._refuses:
                client.close()
                continue
            try:
                server = socket.create_connection((HOST, self._server_port), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._pairs.append((client, server))
            for call in (self._pass_requests, self._pass_replies):
                thread = threading.Thread(target=call, args=(client, server), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(1 << 16):
                self._requests_pass.wait()
                server.sendall(chunk)
        # Held to the end, or the client has gone.
        self._requests_pass.wait()
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _pass_replies(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := server.recv(1 << 16):
                if not self._drops_replies:
                    with suppress(OSError):
                        client.sendall(chunk)
        # While the other thread reads from the client, closing alone would not end the connection:
        # the client would notice only at its own time-out.
        for each in (client, server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
