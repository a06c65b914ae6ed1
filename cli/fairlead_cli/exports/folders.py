"""Folders for backups: on this machine, and in an object store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from fairlead_cli.errors import CliError
from fairlead_cli.exports.s3_address import S3Address, is_s3, parse_folder

if TYPE_CHECKING:
    from collections.abc import Iterable


class Folder(Protocol):
    """Files by name. Every failure is a CliError."""

    def write(self, name: str, text: str) -> str:
        """Write a file durably, completely or not at all; return its place."""

    def list_names(self, prefix: str) -> Iterable[str]:
        """Return the names with this prefix, in any order."""

    def remove(self, name: str) -> None:
        """Remove a file, which may be gone already."""


class LocalFolder:
    """A folder of this machine, which exists."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> str:
        path = self.path / name
        temporary = path.with_suffix(".partial")
        try:
            with temporary.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise CliError(f"cannot write {path}: {error}") from error
        return str(path)

    def list_names(self, prefix: str) -> Iterable[str]:
        return [path.name for path in self.path.iterdir() if path.name.startswith(prefix)]

    def remove(self, name: str) -> None:
        path = self.path / name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CliError(f"cannot remove {path}: {error.strerror}") from error


class S3Folder:
    """The objects of a bucket directly in a folder: their keys have no further '/'."""

    def __init__(self, address: S3Address) -> None:
        """Raise CliError if no client can be built."""
        from fairlead_cli.exports.object_store import ObjectStore

        self._store = ObjectStore(address.bucket)
        self._prefix = address.key

    def write(self, name: str, text: str) -> str:
        key = self._prefix + name
        self._store.write(key, text.encode())
        return self._store.place(key)

    def list_names(self, prefix: str) -> Iterable[str]:
        for key in self._store.list_keys(self._prefix + prefix):
            yield key.removeprefix(self._prefix)

    def remove(self, name: str) -> None:
        self._store.remove(self._prefix + name)


class FolderType(click.Path):
    """A command's argument: an existing folder, or a folder in an object store."""

    def __init__(self) -> None:
        super().__init__(exists=True, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if is_s3(value) else super().convert(value, param, ctx)


def open_folder(place: str) -> Folder:
    """Return the folder at a path or an `s3://…`; CliError."""
    return S3Folder(parse_folder(place)) if is_s3(place) else LocalFolder(Path(place))
