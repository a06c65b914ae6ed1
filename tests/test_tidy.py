"""House rules that a linter does not know: sizes, names, layout (CONTRIBUTING.md)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_FOLDERS = ("broker", "operator", "cli", "spark")
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
BANNED_MODULE_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b|NotImplementedError")


def source_files() -> Iterator[Path]:
    for folder in PACKAGE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "messages" not in path.parts and "__pycache__" not in path.parts:
                yield path


SOURCES = list(source_files())


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_file_is_one_concept_of_readable_size(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= FILE_LINES_MAX, f"{len(lines)} lines: split it by concept"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_functions_read_on_one_screen(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_module_says_what_it_is_and_is_finished(path: Path) -> None:
    text = path.read_text()
    if path.name != "__init__.py":
        assert ast.get_docstring(ast.parse(text)), "a module opens with what it is"
    assert path.stem not in BANNED_MODULE_NAMES, "a module is named after its concept"
    assert not UNFINISHED.search(text), "what is not built is refused with an error, not marked"


def test_top_level_folders_are_not_packages() -> None:
    """`operator/` with an __init__.py would shadow the standard library's module."""
    for folder in ("operator", "broker", "spark", "cli", "tests"):
        assert not (ROOT / folder / "__init__.py").exists(), folder


def test_no_machine_path_is_written_down() -> None:
    machine_path = re.compile(r"(?<![\w.])/(?:work|root|farm|home/\w+)/")
    for path in SOURCES:
        assert not machine_path.search(path.read_text()), relative(path)


def test_every_limit_is_used() -> None:
    limits = ROOT / "broker/fairlead_broker/limits.py"
    names = [
        target.id
        for node in ast.parse(limits.read_text()).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id.isupper()
    ]
    text = "\n".join(path.read_text() for path in SOURCES if path != limits)
    unused = [name for name in names if not re.search(rf"\b{name}\b", text)]
    assert not unused, f"limits that bound nothing: {unused}"
