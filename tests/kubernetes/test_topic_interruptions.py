"""Topic resources when a watch breaks, the controller is silent or the operator starts again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from api_fault_proxy import Fault, FaultProxy, is_watch
from controller_bench import CLUSTER
from processor_wait import Stopwatch
from topic_bench import (
    DEADLINE_S,
    Bench,
    eventually,
    is_released,
    play,
    reason_of,
    topic,
    versions,
)

from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.kinds import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

pytestmark = pytest.mark.kubernetes

TOPICS = int(os.environ.get("FAIRLEAD_TEST_TOPICS", "1000"))
LAG_S_MAX = 3.0
READY_WITHIN_S = float(os.environ.get("FAIRLEAD_TEST_TOPICS_READY_S", "15"))


def test_what_happens_while_a_watch_is_broken_is_made_up_for(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        await world.create("first")
        await world.create("goes")
        await world.until("goes", "Ready")
        await world.stop_operator()
        proxy = FaultProxy(kube.credentials)
        await proxy.start()
        world.operators_kube = KubeClient(Credentials(proxy.url, None), request_timeout_s=5.0)
        cut = proxy.add(Fault(matches=watches_topics, bytes_passed=700, is_cut=True))
        await world.start_operator()
        await world.create("second")
        await world.patch("first", partitions=4)
        await world.delete("goes")
        async with asyncio.timeout(DEADLINE_S):
            await cut.happened.wait()
        await world.create("third")
        await world.until("first", "Ready", partitions=4)
        for name in ("second", "third"):
            await world.until(name, "Ready")
        await eventually(lambda: is_released(world, "goes"), lambda: "the release")
        await world.stop_operator()
        await world.operators_kube.close()
        await proxy.stop()

    play(run, kube, namespace, tmp_path, story)


def watches_topics(request: Any) -> bool:
    return is_watch(request) and request.path.endswith("/topics")


def test_a_silent_controller_shows_in_a_new_topic(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        world.remote.is_silent = True
        await world.stop_operator()
        await world.start_operator()
        await world.create("early")
        await world.until("early", "Placing")
        world.remote.is_silent = False
        await world.until("early", "Ready")

    play(run, kube, namespace, tmp_path, story)


def test_a_restart_finds_what_vanished_and_writes_nothing_else(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        for name in ("stays", "vanishes", "alone"):
            await world.create(name)
            await world.until(name, "Ready")
        await world.stop_operator()
        patch = {"metadata": {"annotations": {"fairlead.io/managed": "false"}}}
        await kube.patch(TOPIC, namespace, "alone", patch)
        await world.patch("alone", partitions=9)
        await world.delete("vanishes")
        before = await versions(world)
        await world.start_operator()
        await eventually(lambda: is_released(world, "vanishes"), lambda: "the release")
        await world.create("later")
        await world.until("later", "Ready")
        after = await versions(world)
        assert {name: after[name] for name in before} == before
        assert world.topic("alone").header.resource == "alone"
        assert len(world.topic("alone").partitions) == 3

    play(run, kube, namespace, tmp_path, story)


@pytest.mark.slow
def test_a_thousand_topics_are_ready_soon_and_a_restart_writes_nothing(
    run: Callable[[Coroutine[Any, Any, Any]], Any],
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "topics.yaml"
    spec = {"clusterName": CLUSTER, "partitions": 3, "replicationFactor": 3}
    manifests = [topic(f"t-{number}", **spec) for number in range(TOPICS)]
    path.write_text(yaml.safe_dump_all(manifests))

    async def story(world: Bench) -> None:
        started, cpu, watch = time.monotonic(), time.process_time(), Stopwatch()
        command = ["kubectl", "create", "-n", namespace, "-f", str(path)]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
        assert await process.wait() == 0
        created_s = time.monotonic() - started
        deadline = time.monotonic() + 8 * READY_WITHIN_S
        while (ready := await count_ready(world)) < TOPICS:
            assert time.monotonic() < deadline, f"{ready} topics are Ready"
            await asyncio.sleep(0.1)
        written_s, waited_s = time.monotonic() - started, watch.left_out_s()
        cpu_s = time.process_time() - cpu
        with capsys.disabled():
            print(
                f"\n{ready} topics Ready {written_s:.1f} s after kubectl create began, which took "
                f"{created_s:.1f} s; {world.remote.calls} calls of the controller, "
                f"{world.sync.statuses.written} statuses written, {cpu_s:.1f} s of CPU",
                file=sys.stderr,
            )
        # On a busy machine kubectl alone takes longer than that; what comes after it is ours, but
        # for the time for which nobody let us run.
        assert written_s - waited_s < max(READY_WITHIN_S, created_s + LAG_S_MAX)

        await world.stop_operator()
        calls, requests = world.remote.calls, await versions(world)
        await world.start_operator()
        batches = TOPICS // 100
        await eventually(
            lambda: called(world, calls + 1 + batches), lambda: "the operator to look at all"
        )
        await world.create("last")
        await world.until("last", "Ready")
        assert world.sync.statuses.written == 1
        after = await versions(world)
        assert {name: after[name] for name in requests} == requests

    play(run, kube, namespace, tmp_path, story)


async def count_ready(world: Bench) -> int:
    """Ask the API server only towards the end: a list of everything costs it time."""
    if world.sync.statuses.written < 0.99 * TOPICS:
        return 0
    items = (await world.kube.list(TOPIC, world.namespace)).items
    return sum(reason_of(item) == "Ready" for item in items)


async def called(world: Bench, calls: int) -> bool:
    return world.remote.calls >= calls
