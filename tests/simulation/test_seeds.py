"""Whole runs under seeded faults: nothing promised is broken, and all heals.

`make simulate SEEDS=5000` runs more seeds, `make simulate SEED=123` replays one, and
FAIRLEAD_FIRST_SEED begins elsewhere. A failure prints the last events before it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulator.compaction import KEYED
from simulator.disk_log import DiskLog
from simulator.world import Options, SimulationFailed, World, run_seed

SEEDS = int(os.environ.get("FAIRLEAD_SEEDS", "500"))
FIRST_SEED = int(os.environ.get("FAIRLEAD_FIRST_SEED", "0"))
ONLY_SEED = os.environ.get("FAIRLEAD_SEED")
PER_TEST = 50
FAILURES_SHOWN = 3

CHUNKS = (
    [[int(ONLY_SEED)]]
    if ONLY_SEED
    else [
        list(range(first, min(first + PER_TEST, FIRST_SEED + SEEDS)))
        for first in range(FIRST_SEED, FIRST_SEED + SEEDS, PER_TEST)
    ]
)
REGRESSIONS = [
    int(line.split()[0])
    for line in Path(__file__).with_name("regressions.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def play(seeds: list[int], options: Options | None = None) -> None:
    failures = []
    for seed in seeds:
        try:
            run_seed(seed, options)
        except SimulationFailed as failure:
            failures.append(str(failure))
    count = len(failures)
    assert not failures, f"{count} seeds failed\n\n" + "\n\n".join(failures[:FAILURES_SHOWN])


@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_no_promise_is_broken(seeds: list[int]) -> None:
    play(seeds)


def test_seeds_that_once_failed() -> None:
    # As they were when they failed: before some seeds had compacted topics, or meddlers.
    play(REGRESSIONS, Options(is_compacting=False, has_meddlers=False))


def test_seeds_with_compaction_that_once_failed() -> None:
    """4, 10: a power cut's gap was taken for compaction. 26: a log that began anew kept its epochs.
    48, 85: producers were forgotten behind a truncation. 56: no room in the map for one batch.
    40962: recovery let an epoch begin behind what had been compacted away at its start."""
    seeds = [4, 10, 26, 48, 56, 85, 40962]
    play(seeds, Options(is_compacting=True, has_meddlers=False))


def test_replicas_of_a_compacted_topic_differ_in_holes() -> None:
    world = World(6, Options(is_compacting=True))
    world.run()
    assert world.checker.compaction.cleanings > 20
    assert world.checker.compaction.removed > 100
    key = world.key(topic=KEYED)
    logs = [world.brokers[replica].log(key) for replica in world.record(topic=KEYED).replicas]
    found = [set(log.contents) for log in logs if isinstance(log, DiskLog)]
    assert len(found) == 3
    assert found[0] != found[1] or found[1] != found[2]


def test_one_seed_is_one_history() -> None:
    first, again, other = run_seed(9), run_seed(9), run_seed(8)
    assert first == again
    assert first.digest != other.digest


def test_the_order_of_hashes_does_not_matter() -> None:
    script = "from simulator.world import run_seed; print(run_seed(9).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parent,
            env=os.environ
            | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": f".{os.pathsep}../support"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert digests == {f"{run_seed(9).digest}\n"}


def test_a_calm_cluster_commits_what_it_is_sent() -> None:
    outcome = run_seed(3, Options(has_faults=False))
    assert outcome.acknowledged > 100
    assert outcome.elections == 3


def test_a_failure_tells_its_seed_and_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.leader_service.may_acknowledge", lambda *_: True)
    with pytest.raises(SimulationFailed) as failed:
        run_seed(3)
    assert "seed 3: Violation: I9" in str(failed.value)
    assert "is registered: epoch" in str(failed.value)
    assert "make simulate SEED=3" in str(failed.value)
