"""The numbers of `docs/invariants.md`: each that is cited is defined, each that is defined is kept.

Numbers are for those who change the code. What users read, documentation and messages, has none.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "invariants.md"
NUMBER = re.compile(r"\b[RIGT][1-9]\d?\b")
CODE = ("broker", "operator", "cli", "spark")
RULE = re.compile(
    r"^\* \*\*(?P<number>[RIGT]\d+)\.\*\* (?P<sentence>.+?)\n"
    r"  \* Source: (?P<source>.+?)\n"
    r"  \* Code: `(?P<code>[^`]+)`\n"
    r"  \* Test: `(?P<test>[^`]+)` in\n    `(?P<test_file>[^`]+)`$",
    re.MULTILINE | re.DOTALL,
)
NOT_RULES = ("broker/codegen/", "broker/fairlead_wire/messages/")
"""There an I with a number is the size of an integer."""


class Rule(NamedTuple):
    """One entry of the page."""

    number: str
    sentence: str
    source: str
    code: str
    test: str
    test_file: str


RULES = [Rule(**found.groupdict()) for found in RULE.finditer(PAGE.read_text())]
DEFINED = {rule.number for rule in RULES}


def project_files(*suffixes: str) -> list[str]:
    """Files of the project itself, by their paths from its root."""
    roots = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    paths = [each for root in roots for each in (root.rglob("*") if root.is_dir() else [root])]
    names = sorted(path.relative_to(ROOT).as_posix() for path in paths if path.is_file())
    return [name for name in names if name.endswith(suffixes) and not name.startswith(NOT_RULES)]


def numbers_in(text: str) -> set[str]:
    return set(NUMBER.findall(text))


def function_texts(path: Path, name: str) -> list[str]:
    """Source of the functions and methods of this name."""
    text = path.read_text()
    return [
        ast.get_source_segment(text, node) or ""
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    ]


def messages_in(text: str) -> Iterator[str]:
    """Texts of a module that may reach a user: all but docstrings and those below attributes."""
    tree = ast.parse(text)
    silent = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.value


def test_every_entry_of_the_page_is_read() -> None:
    entries = re.findall(r"^\* \*\*([RIGT]\d+)\.", PAGE.read_text(), re.MULTILINE)
    assert [rule.number for rule in RULES] == entries
    assert len(DEFINED) == len(RULES), "a number belongs to one rule"
    for letter, highest in (("R", 22), ("I", 11), ("G", 11), ("T", 7)):
        assert {f"{letter}{number}" for number in range(1, highest + 1)} <= DEFINED


def test_every_number_that_is_cited_is_defined() -> None:
    unknown = {
        f"{name}: {number}"
        for name in project_files(".py", ".md", ".txt", ".yaml", ".toml")
        for number in numbers_in((ROOT / name).read_text()) - DEFINED
    }
    assert not unknown


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.number)
def test_every_rule_is_enforced_and_tested_where_the_page_says(rule: Rule) -> None:
    code, test_file = ROOT / rule.code, ROOT / rule.test_file
    assert rule.code.startswith(CODE), "a rule is kept by production code"
    assert rule.number in numbers_in(code.read_text()), f"{rule.code} does not cite it"
    (text,) = function_texts(test_file, rule.test)
    assert rule.number in numbers_in(text), f"{rule.test} does not cite it"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.number)
def test_every_rule_is_one_sentence_with_its_source(rule: Rule) -> None:
    assert rule.sentence.endswith(".")
    assert re.search(r"KIP-\d+|KAFKA-\d+|Kafka's", rule.source)


def test_no_text_for_users_has_a_number() -> None:
    texts = [
        name
        for name in project_files(".md", ".yaml", ".tpl", ".txt", ".json")
        if name.startswith(("README", "CHANGELOG", "docs/", "charts/", "crds/", "examples/"))
        and name != "docs/invariants.md"
    ]
    assert "README.md" in texts and "docs/failure_modes.md" in texts
    cited = {name: numbers_in((ROOT / name).read_text()) for name in texts}
    assert not {name: found for name, found in cited.items() if found}


def test_no_message_has_a_number() -> None:
    cited = set()
    for name in project_files(".py"):
        if name.startswith(CODE):
            text = (ROOT / name).read_text()
            # Click shows docstrings, too.
            shown = [text] if name.startswith("cli/") else messages_in(text)
            cited |= {f"{name}: {message[:80]}" for message in shown if numbers_in(message)}
    assert not cited
