"""A drill of the controller: it asks its own supervisor, where drills are allowed."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead_controller.kubernetes.admin_api import AdminApi
from fairlead_controller.kubernetes.settings import read_settings
from fairlead_controller.kubernetes.supervisor_pipe import SupervisorPipe, find_supervisor


class HeldLease:
    is_active = True

    def describe(self) -> dict[str, Any]:
        return {}

    def find_reign(self, key: tuple[str, str]) -> None:
        raise AssertionError(key)


@pytest.fixture
def pipe() -> Iterator[tuple[int, SupervisorPipe]]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    supervisor = find_supervisor({"FAIRLEAD_SUPERVISOR_FD": str(writer)})
    assert supervisor is not None
    yield reader, supervisor
    for end in (reader, writer):
        os.close(end)


def ask(
    socket: Path, api: AdminApi, body: dict[str, Any], path: str = "/v1/fault"
) -> tuple[int, dict[str, Any]]:
    async def run() -> tuple[int, dict[str, Any]]:
        await api.start(socket)
        try:
            async with (
                aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as session,
                session.post(f"http://controller{path}", json=body) as response,
            ):
                return response.status, await response.json()
        finally:
            await api.stop()

    return asyncio.run(run())


def test_the_supervisor_hears_what_to_do(tmp_path: Path, pipe: tuple[int, SupervisorPipe]) -> None:
    reader, supervisor = pipe
    for body in ({"fault": "pause", "durationMs": 700}, {"fault": "kill"}):
        api = AdminApi(HeldLease(), supervisor=supervisor, allows_drills=True)
        assert ask(tmp_path / "s", api, body)[0] == 200
    assert os.read(reader, 100) == b"pause 700\nkill\n"


def test_nothing_is_done_unless_the_chart_allows_it(
    tmp_path: Path, pipe: tuple[int, SupervisorPipe]
) -> None:
    reader, supervisor = pipe
    socket, kill = tmp_path / "s", {"fault": "kill"}
    status, said = ask(socket, AdminApi(HeldLease(), supervisor=supervisor), kill)
    assert (status, "drills.controller" in said["message"]) == (409, True)
    status, said = ask(socket, AdminApi(HeldLease(), allows_drills=True), kill)
    assert (status, "supervisor" in said["message"]) == (409, True)
    standby = HeldLease()
    standby.is_active = False
    api = AdminApi(standby, supervisor=supervisor, allows_drills=True)
    assert ask(socket, api, kill) == (
        503,
        {"role": "standby", "message": "another candidate is active"},
    )
    for wrong in ({"fault": "burn"}, {"fault": "pause", "durationMs": "1"}, {}):
        api = AdminApi(HeldLease(), supervisor=supervisor, allows_drills=True)
        assert ask(socket, api, wrong)[0] == 400
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)


def test_without_a_supervisor_there_is_none() -> None:
    assert find_supervisor({}) is None
    assert find_supervisor({"FAIRLEAD_SUPERVISOR_FD": "no"}) is None
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    assert find_supervisor({"FAIRLEAD_SUPERVISOR_FD": str(writer)}) is None


def test_drills_are_off_unless_the_environment_says_so() -> None:
    environment = {"POD_NAME": "p-0", "POD_NAMESPACE": "ns"}
    assert not read_settings([], environment).allows_drills
    on = environment | {"FAIRLEAD_CONTROLLER_DRILLS": "true"}
    assert read_settings([], on).allows_drills
