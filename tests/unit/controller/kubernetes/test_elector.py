"""The shell around the Lease, against an API server in memory."""

from __future__ import annotations

import asyncio

from fake_api_server import FakeApiServer

from fairlead_controller.kubernetes.elector import Elector
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.kinds import LEASE

DEADLINE_S = 60.0


def test_a_confirmation_is_a_renewal_that_was_begun_after_it_was_asked_for() -> None:
    async def story() -> None:
        server = FakeApiServer()
        await server.start()
        client = KubeClient(
            Credentials(server.url, None), request_timeout_s=10.0, connect_timeout_s=5.0
        )
        elector = Elector(client, "ns", "lease", "me")
        keeping = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                await elector.acquire()
                lease = await client.get(LEASE, "ns", "lease")
                keeping = asyncio.create_task(elector.keep())
                await elector.confirm()
                renewed = await client.get(LEASE, "ns", "lease")
                assert renewed["spec"]["renewTime"] > lease["spec"]["renewTime"]
                assert elector.is_held()
                while True:
                    stolen = await client.get(LEASE, "ns", "lease")
                    stolen["spec"]["holderIdentity"] = "a thief"
                    answer = await asyncio.gather(
                        client.replace(LEASE, "ns", "lease", stolen), return_exceptions=True
                    )
                    if isinstance(answer[0], dict):
                        break
                confirming = asyncio.create_task(elector.confirm())
                assert "a thief" in await keeping
                assert not confirming.done()
                confirming.cancel()
        finally:
            if keeping is not None:
                keeping.cancel()
            await client.close()
            await server.stop()

    asyncio.run(story())
