"""Clusters of three brokers that get two more and lose them again, by an operator's commands."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Protocol

from fairlead_bench.peers.cluster_state import wait_until_all_say
from fairlead_bench.peers.fairlead_cluster import FairleadCluster

STAYING: Final = 3
LARGE: Final = 5
MOVES_TIMEOUT_S: Final = 900
SETTINGS: Final = {"offsets.topic.replication.factor": str(STAYING)}
SHARE_MIN: Final = 0.8
REPLICA: Final = re.compile(r"-\d+$")
"""The end of a replica's folder."""
REFUSED: Final = re.compile(r'is stale, and nothing was moved|"refused": \[\s*\{')


class ReshapeError(Exception):
    """The cluster did not get the wanted number of brokers; the text says why."""


class ReshapedCluster(Protocol):
    """The operations of a run on a cluster, on this machine or on Kubernetes."""

    first_kill_s: tuple[float, float]
    """Range of the time from the first order to the first kill."""
    kills_apart_s: tuple[float, float]
    held_down_s: tuple[float, float]

    @property
    def bootstrap(self) -> str: ...
    def add_brokers(self) -> None:
        """Add two empty brokers; return when all five serve."""

    def fill_new_brokers(self) -> None:
        """Rebalance; return when the new brokers have their share."""

    def empty_new_brokers(self) -> None:
        """Order that three brokers have all replicas; return when they have."""

    def remove_new_brokers(self) -> None:
        """Stop the two new brokers, and unregister them."""

    def victims(self) -> list[str]:
        """Return what can be killed now: ids of brokers, and `controller`."""

    def kill(self, victim: str) -> None: ...
    def bring_back(self, victim: str) -> None:
        """Start it again, unless Kubernetes does."""

    def leftovers(self) -> list[str]:
        """Return files that must not be on any disk when three brokers are left."""


class LocalProcesses:
    """Processes on this machine, administered with the command `fairlead`."""

    first_kill_s, held_down_s = (0.2, 1.5), (0.2, 2.0)

    def __init__(
        self,
        data: Path,
        settings: dict[str, str],
        *,
        kills_apart_s: tuple[float, float] = (1.0, 5.0),
    ) -> None:
        self.kills_apart_s = kills_apart_s
        self._processes = FairleadCluster(data, SETTINGS | settings, brokers=LARGE)
        self._running = set(range(STAYING))

    @property
    def bootstrap(self) -> str:
        return self._processes.bootstrap

    def start(self) -> None:
        self._processes.prepare()
        self._processes.start_controller()
        for index in range(STAYING):
            self._processes.start_broker(index)
        self._wait_for_brokers(STAYING)

    def stop(self) -> None:
        self._processes.stop()

    def add_brokers(self) -> None:
        for index in range(STAYING, LARGE):
            self._processes.start_broker(index)
            self._running.add(index)
        self._wait_for_brokers(LARGE)

    def fill_new_brokers(self) -> None:
        deadline = time.monotonic() + MOVES_TIMEOUT_S
        while not has_shares(plan := self._command("rebalance", "-o", "json")):
            try:
                self._command("rebalance", "--execute", plan["id"], "--wait", "-o", "json")
            except ReshapeError as refusal:
                # A broker has died, so the plan is stale or a move to it is refused: plan again.
                if not REFUSED.search(str(refusal)) or time.monotonic() > deadline:
                    raise

    def empty_new_brokers(self) -> None:
        for index in range(STAYING, LARGE):
            self._order_drain(index)
        for index in range(STAYING, LARGE):
            self._command("broker", "drain", str(index), "--wait", "-o", "json")

    def remove_new_brokers(self) -> None:
        for index in range(STAYING, LARGE):
            # If it was down before, only now can the command see that its disk is empty.
            self._command("broker", "drain", str(index), "--wait", "-o", "json")
            self._running.discard(index)
            self._processes.stop_broker(index)
        for index in range(STAYING, LARGE):
            self._command("broker", "unregister", str(index))

    def kill(self, victim: str) -> None:
        if victim == "controller":
            self._processes.controller.kill()
        else:
            self._processes.kill_broker(int(victim))

    def bring_back(self, victim: str) -> None:
        if victim == "controller":
            self._processes.start_controller()
        else:
            self._processes.start_broker(int(victim))

    def victims(self) -> list[str]:
        return ["controller", *map(str, sorted(self._running))]

    def leftovers(self) -> list[str]:
        brokers = [self._processes.log_directory_of(index) for index in range(LARGE)]
        strays = [str(each) for folder in brokers for each in folder.glob("*-stray")]
        # Deleted replicas stay for a while, in folders with other suffixes.
        left = [
            str(each)
            for folder in brokers[STAYING:]
            for each in folder.iterdir()
            if REPLICA.search(each.name)
        ]
        return strays + left

    def _order_drain(self, index: int) -> None:
        """Order it; repeat that while it is refused because too few others are alive."""
        deadline = time.monotonic() + MOVES_TIMEOUT_S
        while True:
            try:
                self._command("broker", "drain", str(index), "-o", "json")
                return
            except ReshapeError as refusal:
                if "cannot be drained" not in str(refusal) or time.monotonic() > deadline:
                    raise

    def _wait_for_brokers(self, count: int) -> None:
        wait_until_all_say(
            self._processes,
            lambda reply: reply.brokers_count == count,
            what=f"{count} brokers",
            indexes=list(range(count)),
        )

    def _command(self, *words: str) -> Any:
        return run_fairlead(self.bootstrap, *words)


def run_fairlead(bootstrap: str, *words: str) -> Any:
    """Run `fairlead` as an operator would; return its output if that is JSON.

    ReshapeError if the command fails.
    """
    command = [sys.executable, "-m", "fairlead_cli.main", *words]
    done = subprocess.run(
        [*command, "--bootstrap", bootstrap],
        capture_output=True,
        text=True,
        timeout=MOVES_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise ReshapeError(
            f"{' '.join(words)}: exit code {done.returncode}: {done.stderr}{done.stdout}"
        )
    return json.loads(done.stdout) if "json" in words else None


def has_shares(plan: dict[str, Any]) -> bool:
    """Return whether the new brokers have their share of replicas.

    The plan alone does not say so: it leaves out partitions with missing replicas.
    """
    held = {share["broker"]: share["replicas"][0] for share in plan["shares"]}
    least = SHARE_MIN * sum(held.values()) / LARGE
    return all(held.get(index, 0) >= least for index in range(STAYING, LARGE))
