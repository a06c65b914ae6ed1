"""Rebalances on a real API server: proposed, approved, moved, paused, called back, and resumed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rebalance_bench import RebalanceBench, play
from rebalance_stories import STORIES, on_broker_three

from fairlead_kube.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from fairlead_kube.client import KubeClient

pytestmark = pytest.mark.kubernetes

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/kubernetes/rebalance.yaml"


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_stories(
    run: Callable[[Coroutine[Any, Any, Any]], Any],
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    story: Callable[[RebalanceBench], Awaitable[None]],
) -> None:
    play(run, kube, namespace, tmp_path, story)


def test_the_example_is_carried_out_by_the_commands_in_it(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    lines = EXAMPLE.read_text().splitlines()
    commands = [line.removeprefix("#   ") for line in lines if line.startswith("#   ")]
    shortened = f'kubectl() {{ command kubectl -n {namespace} "$@"; }}'
    script = "\n".join(["set -e", shortened, *commands])

    async def story(bench: RebalanceBench) -> None:
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", script, cwd=EXAMPLE.parents[2], stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        assert process.returncode == 0
        assert "ProposalReady" in said.decode(), "the column Phase"
        assert on_broker_three(bench) >= 5
        assert not bench.world.is_moving

    play(run, kube, namespace, tmp_path, story)


def test_an_unknown_cluster_and_another_one_are_named(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(bench: RebalanceBench) -> None:
        await bench.create("lost", clusterName="nobody")
        await bench.until("Pending", "ClusterNotFound", name="lost")
        with pytest.raises(ApiError, match="cannot change to another cluster"):
            await bench.patch("lost", clusterName="demo")
        with pytest.raises(ApiError, match="approve"):
            await bench.patch("lost", approve="yes")
        await bench.patch("lost", cancel=True)
        await bench.until("Cancelled", name="lost")
        with pytest.raises(ApiError, match="a cancelled rebalance cannot go on"):
            await bench.patch("lost", cancel=False)
        await bench.delete("lost")
        await bench.until_gone("lost")

    play(run, kube, namespace, tmp_path, story)
