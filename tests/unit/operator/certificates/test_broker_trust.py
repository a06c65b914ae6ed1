"""What brokers answer of the certificates that they trust, if they get no processor for seconds."""

import asyncio
import json

import pytest
from waiting import until

from fairlead_operator.clusters.tls import broker_trust
from fairlead_operator.clusters.tls.broker_trust import BrokerTrust, TrustAnswer

LATE_S = 1.3
TOLD = {"PEERS": {"certificate": "ours", "trusted": ["old", "new"]}}


def test_a_broker_that_answers_late_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(LATE_S)
        content = json.dumps(TOLD).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write(head.encode() + content)
        writer.close()

    expected = [TrustAnswer(frozenset({"ours"}), frozenset({"old", "new"}))]
    pod = {"status": {"podIP": "127.0.0.1"}}

    async def story() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            monkeypatch.setattr(broker_trust, "HTTP_PORT", server.sockets[0].getsockname()[1])

            async def is_heard() -> bool:
                return await BrokerTrust().ask([pod], ["PEERS"]) == expected

            # A busy machine may keep this process waiting even longer, but not each time.
            await until(is_heard)

    asyncio.run(story())
