"""House rules that a linter does not know: sizes, names, layout (CONTRIBUTING.md)."""

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE_FOLDERS = ("broker", "operator", "cli", "spark", "release")
# One class may need more room than one idea of it did: what matters is one concept a module.
FILE_LINES_MAX = 700
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


def test_a_file_is_one_concept_of_readable_size() -> None:
    lengths = {relative(path): path.read_text().count("\n") for path in SOURCES}
    long = {name: length for name, length in lengths.items() if length > FILE_LINES_MAX}
    assert not long, "split these by concept"


def test_functions_read_on_one_screen() -> None:
    long = {
        f"{relative(path)}: {node.name}": length
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert not long, "lines of functions"


def test_every_module_says_what_it_is_and_is_finished() -> None:
    for path in SOURCES:
        text, name = path.read_text(), relative(path)
        if path.name != "__init__.py":
            assert ast.get_docstring(ast.parse(text)), f"{name}: a module opens with what it is"
        assert path.stem not in BANNED_MODULE_NAMES, f"{name}: named after its concept"
        unfinished = UNFINISHED.search(text)
        assert not unfinished, f"{name}: what is not built is refused with an error, not marked"


def banners(text: str) -> list[str]:
    """List the comments that stand alone between blank lines, such as `# Life.`."""
    lines = ["", *text.splitlines(), ""]
    alone = zip(lines, lines[1:], lines[2:], strict=False)
    if not any(
        line.lstrip().startswith("#") and not before.strip() and not after.strip()
        for before, line, after in alone
    ):
        return []  # Most files have no such line, and tokens take their time.
    return [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        and lines[token.start[0]].strip() == token.string
        and not lines[token.start[0] - 1].strip()
        and not lines[token.start[0] + 1].strip()
    ]


TESTS = [each for each in sorted((ROOT / "tests").rglob("*.py")) if "__pycache__" not in each.parts]


def test_no_comment_is_a_banner() -> None:
    found = {
        relative(path): lines for path in (*SOURCES, *TESTS) if (lines := banners(path.read_text()))
    }
    assert not found, "what has several parts says so in its docstring"


def test_a_banner_is_found() -> None:
    text = "a = 1\n\n# Life.\n\nb = 2\n\n# Why b is 2.\nb = 2\n\nc = 3  # c\n\n"
    assert banners(text) == ["# Life."]


def test_top_level_folders_are_not_packages() -> None:
    """`operator/` with an __init__.py would shadow the standard library's module."""
    for folder in ("operator", "broker", "spark", "cli", "tests"):
        assert not (ROOT / folder / "__init__.py").exists(), folder


def test_types_of_all_tests_are_checked() -> None:
    """mypy is told of folders and programs, and follows imports: nothing lies beside these."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    is_left_out = re.compile("|".join(settings["exclude"])).search
    folders = {*settings["packages"], *settings["modules"]}
    imported = {
        word
        for path in TESTS
        for line in re.findall(r"^ *(?:from|import) .*", path.read_text(), re.MULTILINE)
        for word in re.findall(r"\w+", line)
    }
    unchecked = []
    for path in TESTS:
        name = relative(path)
        *above, module = name.removesuffix(".py").split("/")
        parts = [".".join([*above, module][:depth]) for depth in range(1, len(above) + 2)]
        is_found = not is_left_out(name) and not folders.isdisjoint(parts)
        if not (is_found or module in imported or module in folders or module == "__init__"):
            unchecked.append(name)
    assert not unchecked, "name them in pyproject.toml"


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
    words = {
        word for path in SOURCES if path != limits for word in re.findall(r"\w+", path.read_text())
    }
    unused = [name for name in names if name not in words]
    assert not unused, f"limits that bound nothing: {unused}"
