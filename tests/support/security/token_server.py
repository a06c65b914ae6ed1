"""An endpoint over TLS that gives tokens to a client with the right secret."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from secure_listener import Certificates

CLIENT, SECRET = "app", "s3cret: of & app"
Answer = tuple[int, Any]


class TokenServer:
    """`answer` returns the status and body for each request with the right secret."""

    def __init__(self, certificates: Certificates, answer: Callable[[], Answer]) -> None:
        self.answer = answer
        self.asked: list[dict[str, list[str]]] = []
        """The form of each request."""
        self.ca = certificates.ca
        own = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                own.asked.append(parse_qs(form))
                wanted = "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
                is_right = self.headers["Authorization"] == wanted
                refusal: Answer = (401, {"error": "invalid_client"})
                status, body = own.answer() if is_right else refusal
                self.send_response(status)
                if status in (301, 302, 307):
                    self.send_header("Location", body)
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Be silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.issue("tokens"))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/realm/token"

    @contextmanager
    def serving(self) -> Iterator[TokenServer]:
        thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def client_settings(self, **changes: str) -> dict[str, str]:
        """Return librdkafka's settings of a client that asks here."""
        return {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": SECRET,
            "https.ca.location": str(self.ca),
            **changes,
        }
