"""Archives whose bytes follow from their files alone: sorted, one date, nobody's user."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SUMS: Final = "SHA256SUMS"


def write_archive(path: Path, files: Mapping[str, bytes], epoch: int) -> None:
    """Write a .tar.gz (.tgz) of files by their names within it."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            entry.mtime = epoch
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=epoch) as stream:
        stream.write(raw.getvalue())
    path.write_bytes(packed.getvalue())


def read_archive(path: Path) -> dict[str, bytes]:
    """Return the files of a .tar.gz by their names within it."""
    with tarfile.open(path, mode="r:gz") as archive:
        return {
            member.name: stream.read()
            for member in archive.getmembers()
            if member.isfile() and (stream := archive.extractfile(member)) is not None
        }


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS over every other file below a folder, as `sha256sum --check` reads it."""
    paths = sorted(each for each in folder.rglob("*") if each.is_file() and each.name != SUMS)
    lines = [f"{sha256_of(path)}  {path.relative_to(folder)}\n" for path in paths]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
