"""A document of metadata goes into a file as a whole, and to what is no file as it is."""

import json
import os
import stat
from pathlib import Path

import pytest

from fairlead_cli.exports.files import write_document

DOCUMENT = {"brokers": [], "topics": [], "what": "an export"}


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metadata.json"
    path.write_text("an older one")
    write_document(str(path), DOCUMENT)
    assert json.loads(path.read_text()) == DOCUMENT
    assert os.listdir(tmp_path) == ["metadata.json"]  # noqa: PTH208 (names only)
    assert capsys.readouterr().out == f"Exported 0 brokers, 0 topics to {path}.\n"


def test_what_is_no_file_is_written_to_and_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who exports to /dev/null as root would have a file there, and to a pipe a reader waits."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # For writing, too: nobody waits for ever where nothing is written.
    descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        write_document(str(pipe), DOCUMENT)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert json.loads(os.read(descriptor, 65536)) == DOCUMENT
    finally:
        os.close(descriptor)
    # Standard output may be that very pipe: `fairlead metadata export /dev/stdout | jq`.
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"Exported 0 brokers, 0 topics to {pipe}.\n")


def test_a_link_stays_and_leads_to_the_document(tmp_path: Path) -> None:
    """As /dev/stdout is one, which a shell may have led into a file."""
    (tmp_path / "metadata.json").write_text("an older one")
    link = tmp_path / "latest"
    link.symlink_to("metadata.json")
    write_document(str(link), DOCUMENT)
    assert link.is_symlink()
    assert json.loads((tmp_path / "metadata.json").read_text()) == DOCUMENT
