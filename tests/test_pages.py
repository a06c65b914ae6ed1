"""Pages have lines that fit a screen; the paths that pages and sources name are there."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("broker", "operator", "cli", "spark")
COLUMNS = 120
PAGES = sorted(
    page
    for folder in (".", "docs", "docs/design", "charts", "crds", "images", "spark")
    for page in (ROOT / folder).glob("*.md")
)
SOURCES = sorted(
    source
    for folder in (*SOURCE_FOLDERS, "tests", "benchmarks", "examples")
    for source in (ROOT / folder).rglob("*.py")
    if "messages" not in source.parts and source != Path(__file__)
)

FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
# A paragraph, or an item of a list with those below it.
PASSAGE = re.compile(r"\n\s*\n|\n(?=(?:[*-]|\d+\.) )")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
MODULE = re.compile(r"[a-z_]+(?:/[a-z_]+)+/?|[\w/]+\.py|[a-z_]+/")
FOLDERS = {
    path.name
    for folder in (ROOT, *(ROOT / name for name in SOURCE_FOLDERS))
    for path in folder.iterdir()
    if path.is_dir() and not path.name.startswith(".")
}
JOB = re.compile(r"fairlead spark run (\S+\.yaml)")
# What is no file of the project, though it looks like one.
OTHERS = {
    "application/json",
    "controller/",
    "dist/",
    "job.py",
    "jobs/",
    "localhost/fairlead",
    "pods/exec",
}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def overlong_lines(text: str) -> list[str]:
    return [
        f"{number}: {line[:60]}…"
        for number, line in enumerate(text.splitlines(), start=1)
        if len(line) >= COLUMNS
    ]


def is_path(code: str) -> bool:
    """Tell whether a piece of code names a file or folder of the project."""
    if not PATH.fullmatch(code) or any(map(code.startswith, OTHERS)):
        return False
    return bool(MODULE.fullmatch(code)) or ("/" in code and code.partition("/")[0] in FOLDERS)


def find(path: str, near: set[Path]) -> Path | None:
    """Find what a path names: from the root, as Python imports it, or beside `near`."""
    for folder in (ROOT, *(ROOT / name for name in SOURCE_FOLDERS), *sorted(near)):
        for candidate in (folder / path, folder / f"{path}.py"):
            if candidate.exists():
                return candidate
    return None


def missing_paths(text: str, *folders: Path) -> list[str]:
    """List the paths of the project that are not there.

    Each begins at the root, in one of `folders` or, as Python imports it, at a package. A short one
    stands after the whole path of a neighbour, in the same paragraph or item.
    """
    missing = []
    for passage in PASSAGE.split(FENCED.sub("", text)):
        near = set(folders)
        for code in CODE.findall(passage):
            if not is_path(code):
                continue
            found = find(code, near)
            if found is None:
                missing.append(code)
            else:
                near |= {found, *found.parents} - {ROOT, *ROOT.parents}
    return missing


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_lines_fit_a_screen(page: Path) -> None:
    assert not overlong_lines(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_paths_of_the_project_are_there(page: Path) -> None:
    assert not missing_paths(page.read_text(), page.parent)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_a_job_that_is_run_by_hand_has_its_topic_made_first(page: Path) -> None:
    """Nothing is made by use on a laptop, and the sample topics are not those of jobs."""
    for block in FENCED.findall(page.read_text()):
        before: list[str] = []
        for line in block.splitlines():
            job = JOB.search(line)
            if job is not None:
                topic = yaml.safe_load((ROOT / job[1]).read_text())["spec"]["sink"]["topic"]
                assert any(f"fairlead topic create {topic}" in each for each in before), line
            before.append(line)


def test_an_overlong_line_is_found() -> None:
    assert overlong_lines(f"{'x' * 119}\n{'x' * 120}") == [f"2: {'x' * 60}…"]


def test_paths_that_sources_name_are_there() -> None:
    missing = [
        (relative(source), code)
        for source in SOURCES
        for code in missing_paths(source.read_text(), source.parent, source.parent.parent)
    ]
    assert not missing


def test_a_path_that_is_not_there_is_found() -> None:
    text = (
        "`fairlead_broker/net/` has `sender.py` and `nothing.py`, not `fairlead_broker/none`.\n"
        "* `sender.py` alone is nobody's\n* `tests/none.txt`, `application/json`, `tests/alone.txt`"
    )
    assert missing_paths(text) == [
        "nothing.py",
        "fairlead_broker/none",
        "sender.py",
        "tests/none.txt",
    ]
