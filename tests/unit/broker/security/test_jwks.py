"""How the keys that tokens are signed with are read."""

from __future__ import annotations

import asyncio
import json
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from plain_certificates import HOST, PlainCertificates, check_as_newer_pythons_do
from tokens import AUDIENCE, ISSUER, TokenIssuer
from waiting import until

from fairlead_broker.security.sasl.jwks import JwksReader
from fairlead_broker.security.sasl.sasl_settings import OAuthSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ISSUERS = TokenIssuer()


class KeyHandler(BaseHTTPRequestHandler):
    """Answers with the keys."""

    def do_GET(self) -> None:
        data = json.dumps(ISSUERS.document()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Be silent."""


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where keys are to be had, from a server that the system's authorities vouch for."""
    certificates = PlainCertificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    server = ThreadingHTTPServer((HOST, 0), KeyHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.issue("keys"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"https://{HOST}:{server.server_port}/keys"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def read(url: str) -> JwksReader:
    settings = OAuthSettings(url, 60_000, 1, 1, 30, ISSUER, (AUDIENCE,), "sub")
    reader = JwksReader(settings)
    reader.start()
    await until(lambda: bool(reader.keys or reader.failures_count))
    await reader.stop()
    return reader


def test_keys_come_from_a_server_whose_certificate_has_no_key_identifiers(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From Python 3.13 on, it was refused."""
    check_as_newer_pythons_do(monkeypatch)
    assert set(asyncio.run(read(url)).keys) == {"k1", "k2"}, caplog.text


def test_a_server_that_nobody_vouches_for_gives_no_keys(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    assert asyncio.run(read(url)).keys == {}
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
