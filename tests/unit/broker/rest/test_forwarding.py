"""Requests passed on: what another broker has answered reaches the client."""

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from fairlead_broker.authorization import ANONYMOUS
from fairlead_broker.limits import REST_MEMORY_BYTES
from fairlead_broker.rest.bodies import BodyMemory
from fairlead_broker.rest.instances.envelopes import ForwardedAnswer, pack_answer
from fairlead_broker.rest.instances.forwarding import Forwarding
from fairlead_broker.rest.problems import ProblemError
from fairlead_wire.messages.envelope import EnvelopeResponse

MAX_BYTES = 1_000


class Asked:
    """A request for an instance of broker 2, and what that has been asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, records: bytes) -> None:
        self.memory = BodyMemory()
        self.held = ExitStack()
        self.times = 0
        owner = SimpleNamespace(fenced=False, rest_url="http://127.0.0.1:1")
        broker: Any = SimpleNamespace(node_id=1, image=SimpleNamespace(brokers={2: owner}))
        self.forwarding = Forwarding(broker, b"secret")
        answer = pack_answer(ForwardedAnswer(200, {"Content-Type": "application/json"}, records))

        async def ask(*_: Any) -> EnvelopeResponse:
            self.times += 1
            return EnvelopeResponse(answer, 0)

        monkeypatch.setattr(self.forwarding._peers, "ask", ask)

        async def wait(asked: Any, _: float) -> Any:
            return await asked

        host = SimpleNamespace(fetches=SimpleNamespace(wait=wait))
        self.request: Any = SimpleNamespace(
            path={"instance_name": "i"},
            query={"max_bytes": MAX_BYTES, "timeout": None},
            operation=SimpleNamespace(body=None),
            http=SimpleNamespace(
                method="GET", headers={}, rel_url=URL("/consumers/g/instances/i"), transport=None
            ),
            kafka=SimpleNamespace(principal=ANONYMOUS, client_host="127.0.0.1", host=host),
            deadline_s=0.0,
            hold=self.hold,
            hold_anyway=self.hold_anyway,
            maybe_compress=lambda _: None,
        )

    def hold(self, size: int, held: ExitStack) -> None:
        self.memory.reserve(size)
        held.callback(self.memory.release, size)

    def hold_anyway(self, size: int) -> None:
        self.memory.count(size)
        self.held.callback(self.memory.release, size)

    def forward(self) -> web.StreamResponse:
        return asyncio.run(self.forwarding.forward(self.request))


def test_where_there_is_no_room_for_records_nobody_is_asked_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = Asked(monkeypatch, b"[]")
    asked.memory.reserve(REST_MEMORY_BYTES - MAX_BYTES + 1)
    with pytest.raises(ProblemError) as caught:
        asked.forward()
    assert caught.value.status == 429
    assert asked.times == 0


def test_records_that_were_answered_are_passed_on_whatever_their_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = b"[%s]" % (b"1" * 5 * MAX_BYTES)
    asked = Asked(monkeypatch, records)
    asked.memory.reserve(REST_MEMORY_BYTES - MAX_BYTES)
    response = asked.forward()
    assert isinstance(response, web.Response)
    assert response.body == records
    assert asked.memory.used_bytes == REST_MEMORY_BYTES - MAX_BYTES + len(records)
    asked.held.close()
    assert asked.memory.used_bytes == REST_MEMORY_BYTES - MAX_BYTES
