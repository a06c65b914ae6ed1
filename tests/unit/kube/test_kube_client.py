"""The client of the Kubernetes API: what it tries again, what it never does, what it says."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from api_fault_proxy import Fault, FaultProxy, is_read, is_watch
from fake_api_server import FakeApiServer
from fake_resource_server import FakeResourceServer

from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials, TokenFile
from fairlead_kube.errors import ApiError, ApiUnavailableError, build_api_error
from fairlead_kube.kinds import LEASE, NODE, POD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

PODS = "/api/v1/namespaces/default/pods"


class World:
    """A client that sees an API server through a proxy."""

    def __init__(self, server: FakeApiServer, proxy: FaultProxy, client: KubeClient) -> None:
        self.server = server
        self.proxy = proxy
        self.client = client

    def sent(self, method: str) -> int:
        return Counter(method for method, _ in self.proxy.requests)[method]


HELD_S = 3.0
"""Until a request that gets no answer is given up."""


def play(
    story: Callable[[World], Awaitable[None]],
    *,
    request_timeout_s: float = 10.0,
    make: type[FakeApiServer] = FakeApiServer,
) -> None:
    async def run() -> None:
        server = make()
        await server.start()
        proxy = FaultProxy(Credentials(server.url, None))
        await proxy.start()
        client = KubeClient(Credentials(proxy.url, None), request_timeout_s=request_timeout_s)
        try:
            await server.put(PODS, "a", n=1)
            async with asyncio.timeout(60):
                await story(World(server, proxy, client))
        finally:
            await client.close()
            await proxy.stop()
            await server.stop()

    asyncio.run(run())


def test_paths() -> None:
    assert POD.path() == "/api/v1/pods"
    assert POD.path("ns", "p", "status") == "/api/v1/namespaces/ns/pods/p/status"
    assert NODE.path(None, "n") == "/api/v1/nodes/n"
    assert LEASE.path("ns") == "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    assert LEASE.api_version == "coordination.k8s.io/v1"
    assert POD.api_version == "v1"
    with pytest.raises(ValueError, match="needs a namespace"):
        POD.path(None, "p")
    with pytest.raises(ValueError, match="in no namespace"):
        NODE.path("ns", "n")


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429}, {"is_cut": True}, {}], ids=str)
def test_reads_are_tried_again(fault: dict[str, object]) -> None:
    async def story(world: World) -> None:
        for _ in range(3):
            world.proxy.add(Fault(matches=is_read, **fault))  # type: ignore[arg-type]
        assert (await world.client.get(POD, "default", "a"))["spec"] == {"n": 1}
        assert world.sent("GET") == 4

    play(story, request_timeout_s=HELD_S)


def test_reads_are_given_up_after_some_tries() -> None:
    async def story(world: World) -> None:
        for _ in range(9):
            world.proxy.add(Fault(matches=is_read, status=500))
        with pytest.raises(ApiError, match="500"):
            await world.client.get(POD, "default", "a")
        assert world.sent("GET") == 4
        assert world.client.counters.failing_since is not None
        world.proxy.faults.clear()
        await world.client.get(POD, "default", "a")
        counted = {("get", "error"): 4, ("get", "ok"): 1}
        found = world.client.counters
        assert (found.failing_since, found.requests) == (None, counted)

    play(story)


def test_a_server_that_wants_to_be_left_alone_is() -> None:
    async def story(world: World) -> None:
        world.proxy.add(Fault(matches=is_read, status=429, retry_after_s=1))
        started = time.monotonic()
        await world.client.list(POD, "default")
        assert time.monotonic() - started > 0.9

    play(story)


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_final_answers_are_not_asked_for_again(status: int) -> None:
    async def story(world: World) -> None:
        world.proxy.add(Fault(matches=is_read, status=status, reason="Because"))
        with pytest.raises(ApiError, match=f"{status} Because"):
            await world.client.get(POD, "default", "a")
        assert world.sent("GET") == 1
        assert world.client.counters.failing_since is None

    play(story)


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 429}, {"is_cut": True}, {}], ids=str)
def test_a_write_is_never_sent_twice_not_even_on_a_kept_connection(
    fault: dict[str, object],
) -> None:
    async def story(world: World) -> None:
        pod = await world.client.get(POD, "default", "a")  # Leaves a connection to be used again.
        world.proxy.add(Fault(**fault))  # type: ignore[arg-type]
        with pytest.raises((ApiError, ApiUnavailableError)) as failure:
            await world.client.replace(POD, "default", "a", pod | {"spec": {"n": 2}})
        if isinstance(failure.value, ApiUnavailableError):
            assert failure.value.may_have_landed
        assert world.sent("PUT") == 1
        await world.client.delete(POD, "default", "a", uid=pod["metadata"]["uid"])

    play(story, request_timeout_s=HELD_S)


def test_a_request_that_nobody_took_cannot_have_landed() -> None:
    async def story(world: World) -> None:
        await world.proxy.go_away()
        with pytest.raises(ApiUnavailableError) as failure:
            await world.client.create(POD, "default", {"metadata": {"name": "b"}})
        assert not failure.value.may_have_landed

    play(story)


def test_a_server_that_does_not_accept_in_time_did_not_get_the_request() -> None:
    async def story() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            port = listener.getsockname()[1]
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", port))
            credentials = Credentials(f"http://127.0.0.1:{port}", None)
            client = KubeClient(credentials, connect_timeout_s=0.2, request_timeout_s=2.0)
            with pytest.raises(ApiUnavailableError) as failure:
                await client.create(POD, "default", {"metadata": {"name": "b"}})
            assert not failure.value.may_have_landed
            await client.close()
            for filler in fillers:
                filler.close()

    asyncio.run(story())


def test_a_conflict_is_told_by_compare_and_swap() -> None:
    async def story(world: World) -> None:
        old = await world.client.get(POD, "default", "a")
        await world.client.replace(POD, "default", "a", old | {"spec": {"n": 2}})
        with pytest.raises(ApiError) as conflict:
            await world.client.replace(POD, "default", "a", old | {"spec": {"n": 3}})
        assert conflict.value.is_conflict
        with pytest.raises(ApiError) as exists:
            await world.client.create(POD, "default", {"metadata": {"name": "a"}})
        assert exists.value.reason == "AlreadyExists"

    play(story)


def test_after_a_failure_other_connections_are_used() -> None:
    async def story(world: World) -> None:
        client = world.client
        await client.get(POD, "default", "a")
        watching = client.watch(POD, "default", resource_version="100", timeout_s=10)
        assert (await anext(watching)).type == "ADDED"
        pool = client._transport._pool
        world.proxy.add(Fault(matches=is_read))
        await client.get(POD, "default", "a")
        assert client._transport._pool is not pool
        assert client._transport._retired == {pool}
        await world.server.put(PODS, "b")  # The watch goes on as it was.
        assert (await anext(watching)).object["metadata"]["name"] == "b"
        await watching.aclose()
        assert client._transport._retired == set()
        assert pool.session.closed

    play(story, request_timeout_s=HELD_S)


def test_pages_of_a_version_that_is_gone_are_read_at_once() -> None:
    async def story(world: World) -> None:
        for number in range(5):
            await world.server.put(PODS, f"p{number}")

        def second_page(request: object) -> bool:
            return "continue" in request.query  # type: ignore[attr-defined]

        world.proxy.add(Fault(matches=second_page, status=410, reason="Expired"))
        listing = await world.client.list(POD, "default", limit=2)
        assert len(listing.items) == 6
        assert listing.resource_version == str(world.server.version)
        assert listing.items[0]["kind"] == "Pod"
        assert listing.items[0]["apiVersion"] == "v1"

    play(story)


def test_a_watch_reports_errors_and_silence() -> None:
    async def story(world: World) -> None:
        world.server.compact()
        with pytest.raises(ApiError) as gone:
            async for _ in world.client.watch(POD, "default", resource_version="1", timeout_s=5):
                raise AssertionError("nothing is left to be told")
        assert gone.value.is_gone
        world.proxy.add(Fault(matches=is_watch, bytes_passed=10, is_cut=False))
        await world.server.put(PODS, "b")
        with pytest.raises(ApiUnavailableError, match="no answer in time"):
            async for _ in world.client.watch(
                POD, "default", resource_version="101", timeout_s=5, silence_timeout_s=0.2
            ):
                raise AssertionError("no line was whole")

    play(story)


def test_a_renewed_token_is_used_at_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    token = TokenFile(path)
    assert token.read() == "first"
    renewed = tmp_path / "renewed"
    renewed.write_text("second")
    renewed.replace(path)
    assert token.read() == "second"
    path.unlink()
    assert token.read() == "second"


def test_errors_say_what_the_server_said() -> None:
    assert str(build_api_error(502, {}, b"<html>bad gateway</html>")) == (
        "502 : <html>bad gateway</html>"
    )
    long = build_api_error(400, {}, b"x" * 10_000)
    assert len(long.message) == 500
    assert build_api_error(429, {"Retry-After": "7"}, b"").retry_after_s == 7.0
    status = b'{"kind":"Status","code":429,"reason":"T","details":{"retryAfterSeconds":3}}'
    assert build_api_error(429, {}, status).retry_after_s == 3.0


def test_what_is_meant_for_an_earlier_object_of_a_name_is_a_conflict() -> None:
    """Kubernetes calls the uid a field that cannot be changed, and ignores it for a status."""

    async def story(world: World) -> None:
        first = await world.client.get(POD, "default", "a")
        uid = first["metadata"]["uid"]
        labels = {"metadata": {"uid": uid, "labels": {"x": "y"}}}
        await world.client.patch(POD, "default", "a", labels)
        told = await world.client.write_status(
            POD, "default", "a", {"phase": "Running", "podIP": None}, uid=uid
        )
        assert told["status"] == {"phase": "Running"}
        await world.client.delete(POD, "default", "a")
        await world.server.put(PODS, "a", n=1)
        with pytest.raises(ApiError) as patched:
            await world.client.patch(POD, "default", "a", labels)
        with pytest.raises(ApiError) as written:
            await world.client.write_status(POD, "default", "a", {"phase": "Failed"}, uid=uid)
        assert patched.value.is_conflict
        assert written.value.is_conflict
        anew = await world.client.get(POD, "default", "a")
        assert "status" not in anew
        assert "labels" not in anew["metadata"]

    play(story, make=FakeResourceServer)
