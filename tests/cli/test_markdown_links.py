"""Every link between our own pages leads to a file that is there, and to a heading in it."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\((?![a-z]+:)([^)\s]*)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
MARKUP = re.compile(r"\[([^]]*)\]\([^)]*\)")


def find_pages() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if listed.returncode:
        return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
    return sorted(path for name in set(listed.stdout.split()) if (path := ROOT / name).exists())


def anchors_of(text: str) -> set[str]:
    """Give the anchors of a page's headings as GitHub makes them."""
    anchors: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        plain = MARKUP.sub(r"\1", heading).replace("`", "").replace("*", "").lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = sum(1 for known in anchors if re.fullmatch(rf"{re.escape(name)}(-\d+)?", known))
        anchors.add(f"{name}-{count}" if count else name)
    return anchors


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(CODE.sub("", FENCED.sub("", page.read_text()))):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text())):
            broken.append(link)
    return broken


PAGES = find_pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert not broken_links(page)


def test_every_page_of_the_docs_is_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in LINK.findall(FENCED.sub("", page.read_text())):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists():
                waiting.append(target)
    assert not [page.name for page in sorted((ROOT / "docs").glob("*.md")) if page not in reached]


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `log`, and more\n[a](#a-log-and-more) [b](#nothing) [c](none.md) `[d](none.md)`\n"
        "```\n# no heading\n[e](none.md)\n```\n[f](#no-heading) [g](https://example.com/x)\n"
    )
    assert broken_links(page) == ["#nothing", "none.md", "#no-heading"]
