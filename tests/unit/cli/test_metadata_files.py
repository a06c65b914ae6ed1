"""What `metadata import` says of a file that is none."""

from pathlib import Path

import pytest

from fairlead_cli.errors import InputError
from fairlead_cli.exports.files import read_document


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"\xff\xfe",
        b"[" * 200_000,
        b"[" * 980 + b"]" * 980,
        b'{"a":' * 101 + b"1" + b"}" * 101,
    ],
)
def test_what_is_no_document_is_said_of_the_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "metadata.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"metadata\.json is not JSON"):
        read_document(str(path))
