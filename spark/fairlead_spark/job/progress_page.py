"""The page with a driver's progress: `/progress`, as JSON, and `/healthz`."""

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

CLIENT_TIMEOUT_S: Final = 10.0
"""How long a client may take for each part of its request, and of the answer."""


class ProgressPage:
    """Serves the result of `describe`, in threads that end with the process."""

    def __init__(self, describe: Callable[[], dict[str, Any]], *, port: int, host: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            # Otherwise a client that says nothing, or is cut off, keeps a thread for good.
            timeout = CLIENT_TIMEOUT_S

            def do_GET(self) -> None:
                if self.path == "/progress":
                    self._answer(200, describe())
                elif self.path == "/healthz":
                    self._answer(200, {"status": "ok"})
                else:
                    self._answer(404, {"error": "there are /progress and /healthz"})

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing, because probes are frequent."""

        class Server(ThreadingHTTPServer):
            # The library's default is IPv4, and a pod may have no IPv4 address.
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        self._server = Server((host, port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        """Serve until the process ends or `stop`."""
        threading.Thread(target=self._server.serve_forever, name="progress", daemon=True).start()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
