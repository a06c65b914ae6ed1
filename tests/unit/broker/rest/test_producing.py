"""Records produced by HTTP: what is refused is not written, however slowly it came."""

import asyncio
import json
from typing import Any

import pytest

from fairlead_broker.net.peer_log import PeerLog
from fairlead_broker.rest import request as request_module
from fairlead_broker.rest.server import RestServer
from fairlead_broker.settings import RestAddress

V2 = ("/topics/t", "application/vnd.kafka.json.v2+json", {"records": [{"value": 1}]})
BATCH = (
    "/v3/clusters/%s/topics/t/records:batch",
    "application/json",
    {"entries": [{"id": "1", "value": {"type": "JSON", "data": 1}}]},
)


async def post(broker: Any, request: tuple[str, str, Any], *, pause_s: float) -> Any:
    """Return what is answered to a body that pauses in its midst."""
    path, media_type, document = request
    path = path % broker.cluster_id if "%" in path else path
    body = json.dumps(document).encode()
    address = RestAddress("127.0.0.1", 0, "127.0.0.1", 0, (), (), 1_000)
    server = RestServer(broker, address, b"secret", PeerLog())
    host, port = server.bind()
    await server.start()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        async with asyncio.timeout(30):
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
            )
            writer.write(body[:5])
            await asyncio.sleep(pause_s)
            writer.write(body[5:])
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            return json.loads(await reader.readexactly(length))
    finally:
        writer.close()
        await server.stop(grace_s=1)


@pytest.mark.parametrize("request_", [V2, BATCH], ids=["v2", "batch"])
def test_the_time_to_write_begins_with_the_end_of_the_body(
    stage: Any, monkeypatch: pytest.MonkeyPatch, request_: tuple[str, str, Any]
) -> None:
    monkeypatch.setattr(request_module, "REST_REQUEST_TIMEOUT_MS", 1_500)
    stage.topic("t")
    answer = stage.run(post(stage.broker, request_, pause_s=1.6))
    (written,) = answer["offsets"] if "offsets" in answer else answer["successes"]
    assert written["offset"] == 0


def test_what_has_no_time_left_is_not_written(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "REST_REQUEST_TIMEOUT_MS", 0)
    stage.topic("t")
    answer = stage.run(post(stage.broker, V2, pause_s=0))
    assert [each["error_code"] for each in answer["offsets"]] == [50003]
    assert stage.partition("t").log.log_end_offset == 0
