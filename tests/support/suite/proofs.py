"""Proofs, of which `make test` does a part and `make proofs` all; more work only takes longer.

A part finds a broken rule; the whole finds what occurs in one of hundreds of histories. A test that
has its size from here has the marker `proof`, by which `make proofs` finds it. `make test` omits
some tests completely (`Whole`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Test = TypeVar("Test", bound="Callable[..., Any]")

WHOLE: Final = "FAIRLEAD_PROOFS"
"""Set by `make proofs` to 1, and by continuous integration to `ci`."""
IN_CI: Final = "ci"


class Proof(NamedTuple):
    """How much of a proof is done: a part, all of it, or the number in a variable."""

    what: str
    part: int
    whole: int
    variable: str
    """Variable of the environment, which overrides both counts."""
    is_whole_in_ci: bool = False
    """For proofs that nothing runs beside: whether each run of `.ci/run` does all of it."""

    def chosen(self, environment: Mapping[str, str] = os.environ) -> int:
        """Return the count for a run in this environment."""
        given = environment.get(self.variable)
        if given is not None:
            return int(given)
        if is_whole(environment) or (self.is_whole_in_ci and environment.get(WHOLE) == IN_CI):
            return self.whole
        return self.part


def is_whole(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether this run does everything that there is."""
    return environment.get(WHOLE, IN_CI) != IN_CI


class Whole(NamedTuple):
    """Tests that `make test` leaves out. A module has its `marks`, or a test is decorated."""

    what: str
    is_done_in_ci: bool = False
    """For tests of real processes, which continuous integration runs beside those of `make test`.
    It runs what only computes among the simulated proofs, as it does the seeds."""

    def is_done(self, environment: Mapping[str, str] = os.environ) -> bool:
        """Return whether a run in this environment does them."""
        return is_whole(environment) or (self.is_done_in_ci and environment.get(WHOLE) == IN_CI)

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        """Return the marker of proofs, and what skips the tests where they are not done."""
        reason = "a part of the proofs: make proofs"
        return [pytest.mark.proof, pytest.mark.skipif(not self.is_done(), reason=reason)]

    def mark(self, test: Test) -> Test:
        """Decorate one test of a module with the marks."""
        for each in self.marks:
            test = each(test)
        return test


CLUSTER_SEEDS = Proof("seeds of simulated clusters", 8, 500, "FAIRLEAD_SEEDS")
MOVING_SEEDS = Proof("seeds of clusters that move partitions", 8, 300, "FAIRLEAD_SEEDS")
FOLLOWER_READ_SEEDS = Proof("seeds of clusters whose followers are read", 6, 200, "FAIRLEAD_SEEDS")
GROUP_SEEDS = Proof("seeds of simulated groups", 30, 500, "FAIRLEAD_SEEDS")
SINK_SEEDS = Proof("seeds of simulated sinks", 100, 1000, "FAIRLEAD_SEEDS")
TRANSACTION_SEEDS = Proof("seeds of simulated transactions", 100, 1000, "FAIRLEAD_SEEDS")
ZOOKEEPER_SEEDS = Proof("seeds of clusters on a simulated ZooKeeper", 4, 200, "FAIRLEAD_SEEDS")
REBALANCE_WALKS = Proof("walks of clusters that balance themselves", 30, 1000, "FAIRLEAD_SEEDS")
CLEANER_STORIES = Proof("histories that Kafka's cleaner judges", 6, 400, "FAIRLEAD_SEEDS")
REST_REQUESTS = Proof("made-up requests of each HTTP operation", 5, 50, "FAIRLEAD_EXAMPLES")
KILLS = Proof("rounds of kill -9", 8, 20, "FAIRLEAD_RUNS", is_whole_in_ci=True)
DRILL_RUNS = Proof("runs of each failover drill", 1, 3, "FAIRLEAD_RUNS")
HOST_ROUNDS = Proof("rounds of faults of whole hosts", 1, 5, "FAIRLEAD_RUNS")
OPEN_TRANSACTIONS = Proof(
    "transactions that are open at once", 500, 10_000, "FAIRLEAD_TRANSACTIONS"
)
OUTAGE_S = Proof("seconds with all of ZooKeeper away", 6, 30, "FAIRLEAD_OUTAGE_S")
PROOFS = (
    CLUSTER_SEEDS,
    MOVING_SEEDS,
    FOLLOWER_READ_SEEDS,
    GROUP_SEEDS,
    SINK_SEEDS,
    TRANSACTION_SEEDS,
    ZOOKEEPER_SEEDS,
    REBALANCE_WALKS,
    CLEANER_STORIES,
    REST_REQUESTS,
    KILLS,
    DRILL_RUNS,
    HOST_ROUNDS,
    OPEN_TRANSACTIONS,
    OUTAGE_S,
)
SIMULATED_MUTANTS = Whole("mutants of the simulated product")
# Most of them have other histories today, and are only additional seeds.
OLD_SEEDS = Whole("seeds of simulated clusters that once failed")
SPARK_DEATHS = Whole("deaths of Spark's drivers, tasks and brokers", is_done_in_ci=True)
CLIENT_RIDES = Whole("real clients through restarts and kills, all at once", is_done_in_ci=True)
NEW_AUTHORITY = Whole("an authority that is replaced under load", is_done_in_ci=True)
OTHER_FAULTS = Whole("faults at load of clusters that differ from the plain one")
INSTALL_PAGE = Whole("the page on hosts, from nothing to a rolling restart")
RESHAPED_PODS = Whole("a pool of Kubernetes that is scaled at full size among kills")
OTHER_SUITES = Whole("suites that clients' authors keep")
PROMETHEUS = Whole("alerts that Prometheus evaluates")
WHOLES = (
    SIMULATED_MUTANTS,
    OLD_SEEDS,
    SPARK_DEATHS,
    CLIENT_RIDES,
    NEW_AUTHORITY,
    OTHER_FAULTS,
    INSTALL_PAGE,
    RESHAPED_PODS,
    OTHER_SUITES,
    PROMETHEUS,
)


SEEDS_A_TEST: Final = 50


def seed_chunks(proof: Proof, environment: Mapping[str, str] = os.environ) -> list[list[int]]:
    """Return the seeds of a proof in one list a test; only the seed in FAIRLEAD_SEED if set."""
    only = environment.get("FAIRLEAD_SEED")
    if only:
        return [[int(only)]]
    first = int(environment.get("FAIRLEAD_FIRST_SEED", "0"))
    end = first + proof.chosen(environment)
    return [
        list(range(start, min(start + SEEDS_A_TEST, end)))
        for start in range(first, end, SEEDS_A_TEST)
    ]


def describe_left(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Tell, for the head of a run, what it leaves to `make proofs`."""
    done = [
        f"{count} of {proof.whole} {proof.what}"
        for proof in PROOFS
        if (count := proof.chosen(environment)) < proof.whole
    ]
    left = [each.what for each in WHOLES if not each.is_done(environment)]
    if not (done or left):
        return ["nothing is left to make proofs"]
    said = [("does", done), ("leaves out", left)]
    parts = [f"{verb} {', '.join(names)}" for verb, names in said if names]
    return [f"{'; '.join(parts)}; the whole: make proofs"]
