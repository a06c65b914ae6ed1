"""Definitions of an earlier release drop status fields that this one writes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fairlead_kube.kinds import LOG_CLUSTER
from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.clusters import status_writer
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.status import ClusterFacts
from fairlead_operator.clusters.status_writer import StatusWriter
from fairlead_operator.live_objects import LiveObjects
from fairlead_operator.metrics import OperatorMetrics

if TYPE_CHECKING:
    import pytest

KEY = ("shop", "demo")
FACTS = ClusterFacts(name="demo", namespace="shop", generation=1, wanted=3)


class OlderServer:
    """Keeps one LogCluster, whose definition lacks status.bootstrap."""

    def __init__(self) -> None:
        self.writes = 0
        self.version = 1
        self.status: dict[str, Any] = {}

    @property
    def manifest(self) -> dict[str, Any]:
        names = {"namespace": KEY[0], "name": KEY[1], "uid": "u-1"}
        metadata = names | {"resourceVersion": str(self.version)}
        return {"kind": "LogCluster", "metadata": metadata, "status": self.status}

    async def write_status(
        self, _kind: Any, _namespace: str, _name: str, status: Any, **_: Any
    ) -> dict[str, Any]:
        kept = {name: value for name, value in status.items() if name != "bootstrap"}
        self.writes += 1
        if kept != self.status:
            self.version += 1
            self.status = kept
        return self.manifest


def test_a_status_that_the_server_cuts_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status_writer, "INTERVAL_S", 0.0)
    server = OlderServer()
    client: Any = server
    live = LiveObjects(client, (KEY[0],), lambda _: None)
    informer: Any = SimpleNamespace(objects={KEY: server.manifest}, is_hidden=lambda _: False)
    live.informers[LOG_CLUSTER] = informer
    events: Any = SimpleNamespace(emit=lambda *_: asyncio.sleep(0))
    writer = StatusWriter(live, ApiWriter(client, live, OperatorMetrics()), events)

    async def look(facts: ClusterFacts) -> int:
        informer.objects[KEY] = server.manifest
        assert await writer.write_cluster(server.manifest, facts)
        return server.writes

    async def story() -> None:
        assert await look(FACTS) == 1
        assert "bootstrap" not in server.status
        assert await look(FACTS) == 1
        # What differs is written, also where the last status comes again after it.
        assert await look(replace(FACTS, wanted=4)) == 2
        assert await look(FACTS) == 3
        # Somebody else has changed it.
        server.status = {}
        assert await look(FACTS) == 4
        # Nothing is remembered of what is gone.
        assert len(writer._cut[LOG_CLUSTER]._cut) == 1
        live._on_change(LOG_CLUSTER, ObjectChange(KEY, informer.objects.pop(KEY), None))
        assert await writer.write_cluster(server.manifest, replace(FACTS, wanted=5))
        assert not writer._cut[LOG_CLUSTER]._cut
        assert len(writer._written_at) == 1

    asyncio.run(story())
