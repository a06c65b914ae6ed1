"""Moves partitions of the applications' topics and of internal topics during the faults.

Each move gives a partition two or three of the brokers, in any order, so that leaders, coordinators
and followers leave and come back; some moves are cancelled or changed before they are complete. At
the end every partition is on all brokers again.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from typing import TYPE_CHECKING, Final

from watched_thread import WatchedThread

from fairlead_bench.peers.cluster_state import ask_metadata
from fairlead_cli.client.reassignment import alter_many, list_all_reassignments
from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fault_driver import LiveCluster

    from fairlead_cli.client.reassignment import Refusal

Place = tuple[str, int]
INTERNAL: Final = ("__transaction_state", "__consumer_offsets")
AT_ONCE_MAX: Final = 6
APART_S: Final = (0.1, 1.0)
TURN_ROUND_CHANCE: Final = 0.2
"""Probability that a move is cancelled or gets another target before it is complete."""
SETTLE_TIMEOUT_S: Final = 90
POLL_S: Final = 0.1
PASSING: Final = frozenset(
    # A dying broker does not answer, and a new one does not know the whole cluster yet.
    {"REQUEST_TIMED_OUT", "NOT_CONTROLLER", "COORDINATOR_NOT_AVAILABLE", "NETWORK_EXCEPTION"}
    # The move to be cancelled is complete already, or its topic is gone.
    | {"NO_REASSIGNMENT_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PARTITION"}
)


class PartitionMover:
    """A thread that starts moves. The names of the run's own topics begin with `stem`."""

    def __init__(
        self, cluster: LiveCluster, stem: str, seed: int, say: Callable[[str], None]
    ) -> None:
        self.moves_count = 0
        self.errors: list[str] = []
        self._cluster, self._stem, self._say = cluster, stem, say
        self._chance = random.Random(seed)
        self._brokers = [cluster.broker_id(index) for index in range(len(cluster.ports))]
        self._free = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._ending = threading.Event()
        self._thread = WatchedThread(self._work)

    def start(self) -> None:
        self._free.set()
        self._thread.start()

    def pause(self) -> None:
        """Begin no more moves; return when no request for one is on its way."""
        self._free.clear()
        self._idle.wait()

    def resume(self) -> None:
        self._free.set()

    def finish(self) -> None:
        """End it, and return when every replica is on every broker again."""
        if not self._thread.was_started or self._ending.is_set():
            return
        self._ending.set()
        self._free.set()
        self._thread.join()
        self._settle()
        self._say(f"{self.moves_count} moves were asked for")

    def _work(self) -> None:
        try:
            while not self._ending.is_set():
                self._idle.set()
                self._free.wait()
                self._idle.clear()
                if self._free.is_set() and not self._ending.is_set():
                    self._move_some()
                    self._ending.wait(self._chance.uniform(*APART_S))
        finally:
            self._idle.set()

    def _move_some(self) -> None:
        places = self._places()
        chosen = self._chance.sample(places, min(len(places), self._chance.randint(1, AT_ONCE_MAX)))
        self._ask({place: self._somewhere() for place in chosen})
        if chosen and self._chance.random() < TURN_ROUND_CHANCE:
            back = self._chance.random() < 0.5
            self._ask({place: None if back else self._somewhere() for place in chosen})

    def _somewhere(self) -> list[int]:
        return self._chance.sample(self._brokers, self._chance.choice((2, 3, 3)))

    def _ask(self, targets: Mapping[Place, list[int] | None]) -> None:
        if not targets:
            return
        try:
            refusals = alter_many(self._cluster.bootstrap, targets)
        except CliError as error:
            self._say(f"nobody moves anything now: {error}")
            return
        self.moves_count += len(targets) - len(refusals)
        self._judge(refusals)

    def _judge(self, refusals: Mapping[Place, Refusal]) -> None:
        self.errors += [
            f"{place}: {refusal.error} {refusal.message}"
            for place, refusal in refusals.items()
            if refusal.error not in PASSING and not refusal.message.endswith(" is down")
        ]

    def _places(self) -> list[Place]:
        """Return all partitions of the run's topics and of the coordinators' topics."""
        for port in self._cluster.ports:
            try:
                known = ask_metadata(port).leaders
            except (OSError, struct.error):
                continue
            return sorted(
                place for place in known if place[0].startswith(self._stem) or place[0] in INTERNAL
            )
        return []

    def _settle(self) -> None:
        """Put every partition on all brokers; all are alive now, so this must succeed."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        asked, state = False, "nobody answered"
        while time.monotonic() < deadline:
            try:
                if not asked:
                    refusals = alter_many(
                        self._cluster.bootstrap, dict.fromkeys(self._places(), self._brokers)
                    )
                    asked, state = not refusals, str(refusals)
                else:
                    left = list_all_reassignments(self._cluster.bootstrap)
                    if not left:
                        return
                    state = str(left)
            except CliError as error:
                state = error.message
            time.sleep(POLL_S)
        self.errors.append(f"not everywhere after {SETTLE_TIMEOUT_S} s: {state}")
