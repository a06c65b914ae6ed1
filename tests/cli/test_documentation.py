"""What README and docs tell people to type is typed here.

A fenced block under `<!-- tested -->` runs as it stands against a real cluster (only the ports are
changed); every other line that begins with `fairlead` must at least be understood.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from confluent_kafka import Producer
from local_cluster import ROOT, Cli
from needed_tools import need

from fairlead_cli.main import fairlead

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md"]
BLOCK = re.compile(
    r"(?:<!-- tested(?:: (?P<kind>\w+))? -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL
)
CONTINUED = re.compile(r"\\\n\s*")
COMMAND = re.compile(r"(?:^|[|(;&] *)(fairlead [^|;&)#>\n]*)", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: `kind` is None where it is not executed."""

    page: str
    number: int
    kind: str | None
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.number}"


def read_blocks() -> Iterator[Block]:
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text()), start=1):
            is_tested = match[0].startswith("<!-- tested")
            kind = (match["kind"] or "shell") if is_tested else None
            yield Block(str(page.relative_to(ROOT)), number, kind, match["text"])


BLOCKS = list(read_blocks())


# Those of Spark run in the session of tests/spark, those of ZooKeeper beside its ensemble, those of
# HTTPS with the secure cluster of test_secure_cluster.py, those of S3 in test_backup_page.py.
ELSEWHERE = {None, "spark", "zookeeper", "https", "s3"}
HERE = [block for block in BLOCKS if block.kind not in ELSEWHERE]


NEEDED_BY = {"kcat": ("kcat",), "http": ("curl",)}
FLUSH_S = 30.0


@pytest.fixture
def greetings(cluster: Cli) -> None:
    """The topic, which the cluster is started with, holds two records more: blocks read some."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{cluster.port}", "log_level": 2})
    errors: list[Any] = []
    for value in ("first", "second"):
        producer.produce("greetings", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(FLUSH_S) == 0
    assert errors == [None, None]


@pytest.mark.usefixtures("greetings")
@pytest.mark.parametrize("block", HERE, ids=lambda block: block.name)
def test_a_block_runs_as_written(block: Block, cluster: Cli, tmp_path: Path) -> None:
    for tool in NEEDED_BY.get(block.kind or "", ()):
        need(tool)
    text = re.sub(
        r"localhost:909(\d)", lambda m: f"localhost:{cluster.port + int(m[1]) - 2}", block.text
    )
    text = text.replace("localhost:8080", f"localhost:{cluster.http_port}")
    text = text.replace("localhost:8180", f"localhost:{cluster.http_port + 100}")
    text = text.replace("localhost:8170", f"localhost:{cluster.http_port + 90}")
    environment = os.environ | {
        "FAIRLEAD_DATA": str(cluster.data),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    shell = ["bash", "-euo", "pipefail", "-c", text.replace("curl -s", "curl -sf")]
    command = [sys.executable, "-c", text] if block.kind == "python" else shell
    result = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert result.returncode == 0, f"{text}\n{result.stdout}\n{result.stderr}"


def find_commands() -> list[tuple[str, str]]:
    """Every `fairlead …` of the pages and of the helps' examples."""
    found = [
        (block.name, match[1].strip())
        for block in BLOCKS
        for match in COMMAND.finditer(CONTINUED.sub("", block.text))
    ]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("place", "line"), find_commands(), ids=lambda value: value)
def test_a_command_is_understood(place: str, line: str) -> None:
    arguments = shlex.split(line)[1:]
    if "VERB" in arguments or "…" in arguments:
        return
    context = click.Context(fairlead, info_name="fairlead")
    command: click.Command = fairlead
    while isinstance(command, click.Group) and not (arguments and arguments[0].startswith("-")):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, place
        command = found
        context = click.Context(command, info_name=name, parent=context)
    if arguments != ["--version"]:
        command.make_context(context.info_name, arguments, parent=context.parent)
