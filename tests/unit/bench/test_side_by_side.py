"""What the workers of `make test` begin with."""

from pathlib import Path

import pytest
from side_by_side import (
    COMPUTING,
    ON_ZOOKEEPER,
    SPARK,
    WAITING_LONG,
    ZOOKEEPER,
    computing_worker,
    scope_of,
    turn,
)

ROOT = Path(__file__).resolve().parents[3]
LISTS = ("alone.txt", "long.txt")
LISTED = [line for name in LISTS for line in (ROOT / "tests" / name).read_text().splitlines()]
SCOPES = [
    "tests/unit/broker/net/test_sender.py",
    "tests/simulation/test_stories.py::test_one",
    "tests/clients/test_client_admin.py",
    "tests/simulation/test_seeds.py::test_no_promise_is_broken[0-49]",
    "tests/test_tidy.py",
]


@pytest.mark.parametrize("place", [*COMPUTING, *WAITING_LONG, *ON_ZOOKEEPER, *LISTED])
def test_every_place_that_a_list_names_is_there(place: str) -> None:
    assert (ROOT / place).exists()


def test_who_waits_begins_with_what_waits_longest_and_computes_at_the_end() -> None:
    begun = sorted(SCOPES, key=lambda scope: turn(scope, is_computing=False))
    assert begun == [SCOPES[2], SCOPES[0], SCOPES[3], SCOPES[1], SCOPES[4]]


def test_who_computes_begins_with_what_computes_longest() -> None:
    begun = sorted(SCOPES, key=lambda scope: turn(scope, is_computing=True))
    assert begun[:3] == [SCOPES[3], SCOPES[1], SCOPES[4]]


def test_all_of_spark_goes_to_one_worker_and_first_of_all() -> None:
    files = ("tests/spark/test_batch.py::test_a", "tests/spark/test_stream.py::test_b[a::b]")
    assert {scope_of(file) for file in files} == {SPARK}
    begun = sorted([*SCOPES, SPARK], key=lambda scope: turn(scope, is_computing=False))
    assert begun[0] == SPARK


def test_whatever_needs_an_ensemble_goes_to_one_worker() -> None:
    files = ("tests/zookeeper/test_imports.py::test_a", "tests/cli/test_zookeeper_store.py::test_b")
    assert {scope_of(file) for file in files} == {ZOOKEEPER}


def test_files_stay_whole_for_what_their_tests_share() -> None:
    assert scope_of("tests/cli/test_records.py::TestX::test_y[a::b]") == "tests/cli/test_records.py"
    assert scope_of(SCOPES[3]) == SCOPES[3]


def test_few_workers_keep_their_priority() -> None:
    assert [computing_worker(count) for count in (1, 2, 3, 4, 5)] == ["", "", "", "gw3", "gw4"]
