"""Tests of the list of seeds that are tried first for mutants."""

import re
from pathlib import Path

import pytest
from find_first_seeds import all_mutants
from simulator import first_seeds
from simulator.first_seeds import FIRST_SEEDS, seeds_to_try

REGISTERED = {
    name
    for path in Path(__file__).parent.glob("test_*.py")
    for name in re.findall(r"^@mutant\(.*?\)\ndef (\w+)", path.read_text(), re.M | re.S)
}


def test_every_listed_mutant_is_there() -> None:
    assert FIRST_SEEDS
    assert FIRST_SEEDS.keys() <= REGISTERED


def test_the_list_is_made_of_all_mutants() -> None:
    assert {name for name, _ in all_mutants()} == REGISTERED


def test_the_listed_seed_comes_first_and_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_seeds, "FIRST_SEEDS", {"rare": 3})
    assert list(seeds_to_try("rare", 6)) == [3, 0, 1, 2, 4, 5]
    assert list(seeds_to_try("frequent", 3)) == [0, 1, 2]
