"""How much of a long proof a run does, and what it says about the rest."""

from pathlib import Path

import proofs
import pytest
from proofs import (
    IN_CI,
    KILLS,
    PROOFS,
    SIMULATED_MUTANTS,
    SPARK_DEATHS,
    WHOLE,
    describe_left,
    seed_chunks,
)

TESTS = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("proof", PROOFS, ids=lambda proof: proof.what)
def test_a_run_does_a_part_and_proofs_the_whole(proof: proofs.Proof) -> None:
    assert 0 < proof.part < proof.whole
    assert proof.chosen({}) == proof.part
    assert proof.chosen({WHOLE: "1"}) == proof.whole
    assert proof.chosen({WHOLE: IN_CI}) == (proof.whole if proof.is_whole_in_ci else proof.part)
    for environment in ({}, {WHOLE: "1"}):
        assert proof.chosen({proof.variable: "7", **environment}) == 7


def test_what_has_no_part_is_left_out() -> None:
    environments: list[dict[str, str]] = [{}, {WHOLE: IN_CI}, {WHOLE: "1"}]
    assert [SIMULATED_MUTANTS.is_done(each) for each in environments] == [False, False, True]
    assert [SPARK_DEATHS.is_done(each) for each in environments] == [False, True, True]


def test_a_run_tells_what_it_leaves() -> None:
    (line,) = describe_left({})
    assert f"{KILLS.part} of {KILLS.whole} {KILLS.what}" in line
    assert line.count(" of ") >= len(PROOFS)
    assert line.endswith("the whole: make proofs")
    assert f"leaves out {SIMULATED_MUTANTS.what}, " in line
    assert SPARK_DEATHS.what in line
    assert SPARK_DEATHS.what not in "".join(describe_left({WHOLE: IN_CI}))
    assert describe_left({WHOLE: "1"}) == ["nothing is left to make proofs"]
    assert KILLS.what not in "".join(describe_left({KILLS.variable: "100"}))


def test_seeds_are_given_out_in_chunks_or_the_only_one() -> None:
    proof = proofs.Proof("seeds", 120, 500, "FAIRLEAD_SEEDS")
    assert [(each[0], each[-1]) for each in seed_chunks(proof, {"FAIRLEAD_FIRST_SEED": "7"})] == [
        (7, 56),
        (57, 106),
        (107, 126),
    ]
    assert len(seed_chunks(proof, {WHOLE: "1"})) == 10
    assert seed_chunks(proof, {"FAIRLEAD_SEED": "99", WHOLE: "1"}) == [[99]]


NAMES = [name for name, value in vars(proofs).items() if isinstance(value, proofs.Proof)]


@pytest.mark.parametrize("name", NAMES)
def test_what_takes_its_size_from_a_proof_is_marked(name: str) -> None:
    """Otherwise `make proofs` would not find it, and nothing would ever do the whole."""
    sizes = (f"{name}.chosen(", f"seed_chunks({name})")
    texts = {path: path.read_text() for path in TESTS.rglob("*.py")}
    users = [path for path, text in texts.items() if any(size in text for size in sizes)]
    assert users
    # A folder's fixtures and tests are one: either of them marks.
    for user in users:
        marked = [user, user.with_name("conftest.py")]
        assert any("mark.proof" in path.read_text() for path in marked if path.exists()), user


WHOLES = [name for name, value in vars(proofs).items() if isinstance(value, proofs.Whole)]


@pytest.mark.parametrize("name", WHOLES)
def test_what_make_test_leaves_out_is_told_and_is_there(name: str) -> None:
    whole = getattr(proofs, name)
    assert whole in proofs.WHOLES
    users = [path for path in TESTS.rglob("test_*.py") if f"{name}.mark" in path.read_text()]
    assert users
    # Continuous integration does some of those of real processes, with the tests.
    targets = ["PROOFS_LIVE"] if whole.is_done_in_ci else ["PROOFS_LIVE", "PROOFS_SIMULATED"]
    places = [place for target in targets for place in proven_places(target)]
    assert all(any(user.is_relative_to(place) for place in places) for user in users), users


def proven_places(variable: str) -> list[Path]:
    """Files and folders that a target of proofs gives to pytest."""
    makefile = (TESTS.parent / "Makefile").read_text()
    (line,) = (each for each in makefile.splitlines() if each.startswith(f"{variable} := "))
    places = [word for word in line.split() if word.startswith("tests/")]
    if "@tests/alone.txt" in line:
        places += (TESTS / "alone.txt").read_text().split()
    return [TESTS.parent / place for place in places]
