"""The Secret by which a drill's load logs in: as new in each round as the first one was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fairlead_kube.errors import ApiError
from fairlead_operator.certificates.authority import KeyPair
from fairlead_operator.drills.agent_pod import build_agent_secret
from fairlead_operator.drills.faults import TargetError
from fairlead_operator.drills.metrics import DrillMetrics
from fairlead_operator.drills.runner import DrillRunner, NameTakenError
from fairlead_operator.own_access import OwnAccess

DRILL: dict[str, Any] = {"metadata": {"name": "weekly", "namespace": "shop", "uid": "d1"}}


class Server:
    """Holds Secrets as the API server does."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.version = 0

    async def create(self, _kind: Any, namespace: str, body: dict[str, Any]) -> None:
        if body["metadata"]["name"] in self.held:
            raise ApiError(409, "AlreadyExists", "")
        self._store(body)

    async def get(self, _kind: Any, namespace: str, name: str) -> dict[str, Any]:
        held: dict[str, Any] = self.held[name]
        return held

    async def replace(self, _kind: Any, namespace: str, name: str, body: dict[str, Any]) -> None:
        if body["metadata"]["resourceVersion"] != self.held[name]["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "")
        self._store(body)

    def _store(self, body: dict[str, Any]) -> None:
        self.version += 1
        stamps = body["metadata"] | {"resourceVersion": str(self.version)}
        self.held[body["metadata"]["name"]] = {**body, "metadata": stamps}


def begin_round(server: Server, year: str, drill: dict[str, Any] = DRILL) -> dict[str, str]:
    """Make the Secret of a round; what it holds then."""
    pair = KeyPair(f"certificate of {year}".encode(), f"key of {year}".encode())
    access = OwnAccess("b:9091", "u", pair, f"authority of {year}".encode())
    nobody: Any = None
    secret = build_agent_secret(drill, access)
    assert secret is not None

    async def ensure() -> None:
        client: Any = server
        runner = DrillRunner(client, nobody, nobody, metrics=DrillMetrics(CollectorRegistry()))
        await runner._ensure_secret(drill, secret)

    asyncio.run(ensure())
    held: dict[str, str] = server.held["drill-weekly"]["stringData"]
    return held


def test_each_round_has_a_certificate_of_its_own() -> None:
    server = Server()
    begin_round(server, "2026")
    held = begin_round(server, "2027")
    assert held["tls.crt"] == "certificate of 2027"
    assert held["tls.key"] == "key of 2027"
    assert held["ca.crt"] == "authority of 2027"


def test_the_secret_of_somebody_else_stays_as_it_is() -> None:
    server = Server()
    begin_round(server, "2026", {"metadata": DRILL["metadata"] | {"uid": "an earlier drill"}})
    with pytest.raises(TargetError, match="not this drill's"):
        begin_round(server, "2027")
    assert server.held["drill-weekly"]["stringData"]["tls.crt"] == "certificate of 2026"


def test_a_secret_that_no_drill_has_left_ends_the_drill() -> None:
    server = Server()
    theirs = {"name": "drill-weekly", "namespace": "shop", "resourceVersion": "1"}
    server.held["drill-weekly"] = {"metadata": theirs, "stringData": {}}
    with pytest.raises(NameTakenError, match="the Secret drill-weekly is not this drill's: delete"):
        begin_round(server, "2027")
    assert server.held["drill-weekly"]["stringData"] == {}
