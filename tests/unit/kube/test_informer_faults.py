"""Informers and all that goes wrong with watches, against an API server in memory."""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from api_fault_proxy import Fault, FaultProxy, is_read, is_watch
from fake_api_server import FakeApiServer

from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import POD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from fairlead_kube.object_changes import ObjectChange

PODS = "/api/v1/namespaces/default/pods"
WATCH_S = 1.0
GRACE_S = 1.5
"""A stall of this process that is longer makes a watch silent that ends in good order."""
DEADLINE_S = 20.0


class World:
    """Pods, and an informer that sees them through a proxy."""

    def __init__(
        self,
        server: FakeApiServer,
        proxy: FaultProxy,
        client: KubeClient,
        namespaces: tuple[str, ...],
    ) -> None:
        self.server = server
        self.proxy = proxy
        self.told: list[str] = []
        self.on_told: Callable[[], None] = lambda: None
        self.shown: list[int] = []
        """How many changes had been told each time that a hidden namespace could be read."""
        self.informer = Informer(
            client,
            POD,
            namespaces=namespaces,
            on_change=self._tell,
            on_shown=lambda: self.shown.append(len(self.told)),
            watch_s=WATCH_S,
            silence_grace_s=GRACE_S,
        )
        self.task: asyncio.Task[None] | None = None

    def _tell(self, change: ObjectChange) -> None:
        sign = "-" if change.new is None else "+" if change.old is None else "~"
        self.told.append(sign + change.key[1])
        self.on_told()

    async def start(self) -> None:
        self.task = asyncio.create_task(self.informer.run())
        await self.informer.synced()

    async def put(self, name: str, **spec: object) -> None:
        await self.server.put(PODS, name, **spec)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert self.task is not None
        assert not self.task.done()

    async def sees(self, *told: str) -> None:
        """Wait until exactly this has been told in all, and the informer agrees with the server."""
        await self.until(lambda: len(self.told) >= len(told))
        assert self.told == list(told)
        known = {name: each["spec"] for (_, name), each in self.informer.objects.items()}
        assert known == {name: each["spec"] for name, each in self.server.objects[PODS].items()}


def play(
    story: Callable[[World], Awaitable[None]], namespaces: tuple[str, ...] = ("default",)
) -> None:
    async def run() -> None:
        server = FakeApiServer()
        await server.start()
        proxy = FaultProxy(Credentials(server.url, None))
        await proxy.start()
        client = KubeClient(Credentials(proxy.url, None), request_timeout_s=2.0)
        world = World(server, proxy, client, namespaces)
        try:
            async with asyncio.timeout(2 * DEADLINE_S):
                await world.put("a", n=1)
                await story(world)
        finally:
            if world.task is not None:
                world.task.cancel()
                with suppress(asyncio.CancelledError):
                    await world.task
            await client.close()
            await proxy.stop()
            await server.stop()

    asyncio.run(run())


def error_event(code: int) -> bytes:
    status = {"kind": "Status", "code": code, "reason": "Expired", "message": "of the test"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


def test_changes_are_told_as_they_come() -> None:
    async def story(world: World) -> None:
        assert world.informer.age_s == math.inf
        assert not world.informer.is_synced
        await world.start()
        await world.sees("+a")
        await world.put("b", n=1)
        await world.put("a", n=2)
        await world.server.remove(PODS, "a")
        await world.sees("+a", "+b", "~a", "-a")
        assert world.informer.relists == 1
        assert "managedFields" not in world.informer.objects["default", "b"]["metadata"]

    play(story)


def test_a_watch_that_ends_in_good_order_is_followed_by_another_without_a_list() -> None:
    async def story(world: World) -> None:
        await world.start()
        await world.until(lambda: world.server.watches >= 3)
        await world.put("b", n=1)
        await world.sees("+a", "+b")
        assert world.informer.relists == 1
        assert world.informer.age_s < WATCH_S + GRACE_S + 1
        assert world.informer.problem == ""

    play(story)


@pytest.mark.parametrize("as_event", [False, True])
def test_what_happened_before_a_410_is_told_deletions_too(as_event: bool) -> None:
    async def story(world: World) -> None:
        await world.put("b", n=1)
        if as_event:
            world.proxy.add(Fault(matches=is_watch, event=error_event(410)))
        else:
            world.proxy.add(Fault(matches=is_watch, status=410, reason="Expired"))
        await world.start()
        await world.server.remove(PODS, "a")
        await world.put("c", n=1)
        world.server.compact()
        await world.sees("+a", "+b", "-a", "+c")
        assert world.informer.relists == 2

    play(story)


@pytest.mark.parametrize("fault", [{"event": error_event(500)}, {"status": 403}, {"is_cut": True}])
def test_other_errors_end_in_a_new_list(fault: dict[str, object]) -> None:
    async def story(world: World) -> None:
        for _ in range(3):
            world.proxy.add(Fault(matches=is_watch, **fault))  # type: ignore[arg-type]
        await world.start()
        await world.until(lambda: world.informer.relists == 4)
        await world.put("b", n=1)
        await world.sees("+a", "+b")

    play(story)


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_line_that_breaks_off_is_read_again(is_cut: bool) -> None:
    async def story(world: World) -> None:
        fault = world.proxy.add(Fault(matches=is_watch, bytes_passed=25, is_cut=is_cut))
        await world.start()
        await world.put("b", text="a line longer than what is passed of it")
        await fault.happened.wait()
        await world.server.remove(PODS, "a")
        await world.sees("+a", "-a", "+b")
        assert world.informer.relists == 2

    play(story)


def test_a_silent_watch_is_found_out() -> None:
    async def story(world: World) -> None:
        silent = world.proxy.add(Fault(matches=is_watch))
        await world.start()
        await silent.happened.wait()
        await world.server.remove(PODS, "a")
        await world.put("b", n=1)
        await world.sees("+a", "-a", "+b")

    play(story)


def test_a_server_that_cannot_read_its_store_lets_the_picture_age() -> None:
    async def story(world: World) -> None:
        await world.start()
        for _ in range(60):
            world.proxy.add(Fault(matches=is_read, status=500))
        await world.until(lambda: world.informer.age_s > 1.5 * WATCH_S)
        assert "500" in world.informer.problem
        world.proxy.faults.clear()
        await world.put("b", n=1)
        await world.sees("+a", "+b")
        assert world.informer.age_s < WATCH_S + GRACE_S + 1

    play(story)


def test_without_the_server_the_picture_stays_and_is_made_good_afterwards() -> None:
    async def story(world: World) -> None:
        await world.start()
        await world.proxy.go_away()
        await world.put("b", n=1)
        await world.server.remove(PODS, "a")
        await world.until(lambda: world.informer.problem != "")
        assert list(world.informer.objects) == [("default", "a")]
        await world.proxy.come_back()
        await world.sees("+a", "-a", "+b")

    play(story)


def test_a_listener_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        def fail() -> None:
            raise RuntimeError("cannot digest this")

        world.on_told = fail
        await world.start()
        await world.put("b", n=1)
        await world.sees("+a", "+b")

    play(story)
    assert "cannot digest this" in caplog.text


def test_a_large_collection_is_listed_in_pages() -> None:
    async def story(world: World) -> None:
        for number in range(1200):
            await world.put(f"p{number}", n=number)
        await world.start()
        assert len(world.informer.objects) == 1201
        assert world.server.lists == 3

    play(story)


def is_of(namespace: str) -> Callable[[web.Request], bool]:
    return lambda request: f"/namespaces/{namespace}/" in request.path


def forbid(world: World, namespace: str, times: int) -> list[Fault]:
    faults = [Fault(matches=is_of(namespace), status=403, reason="Forbidden") for _ in range(times)]
    for fault in faults:
        world.proxy.add(fault)
    return faults


def test_a_forbidden_namespace_does_not_hold_up_the_others() -> None:
    async def story(world: World) -> None:
        forbid(world, "gone", 3)
        await world.server.put(PODS.replace("default", "gone"), "b", n=1)
        await world.start()
        assert world.told == ["+a"]
        assert world.informer.age_s < DEADLINE_S
        assert "Forbidden" in world.informer.problem
        assert world.informer.is_hidden("gone")
        assert not world.informer.is_hidden("default")
        # It may be followed after all.
        await world.until(lambda: world.told == ["+a", "+b"])
        await world.until(lambda: world.shown == [2])
        assert world.informer.problem == ""
        assert set(world.informer.objects) == {("default", "a"), ("gone", "b")}
        assert not world.informer.is_hidden("gone")

    play(story, ("default", "gone"))


def test_a_namespace_that_is_forbidden_later_keeps_its_objects_and_ages_nothing() -> None:
    async def story(world: World) -> None:
        other = PODS.replace("default", "other")
        await world.server.put(other, "b", n=1)
        await world.start()
        assert sorted(world.told) == ["+a", "+b"]
        faults = forbid(world, "other", 6)
        await faults[2].happened.wait()
        assert world.informer.is_hidden("other")
        assert set(world.informer.objects) == {("default", "a"), ("other", "b")}
        assert world.informer.age_s < WATCH_S + GRACE_S + 1
        await world.server.remove(other, "b")
        await world.until(lambda: world.told[-1] == "-b")
        await world.until(lambda: not world.informer.is_hidden("other"))

    play(story, ("default", "other"))


def test_an_informer_that_may_see_nothing_waits() -> None:
    async def story(world: World) -> None:
        faults = forbid(world, "default", 3)
        forbid(world, "other", 100)  # Whichever came on first would end the wait.
        task = asyncio.create_task(world.start())
        for fault in faults[:2]:
            await fault.happened.wait()
            assert not world.informer.is_synced
            assert world.informer.age_s == math.inf
        await task
        assert world.told == ["+a"]

    play(story, ("default", "other"))
