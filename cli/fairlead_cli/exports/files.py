"""Read or write a document of metadata: a file, stdin and stdout, or an `s3://…`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import click

from fairlead_cli.errors import CliError, InputError
from fairlead_cli.exports.s3_address import is_s3, parse_file
from fairlead_cli.output import format_count
from fairlead_cli.strict_json import parse_json
from fairlead_cli.whole_file import write_whole

STDIN_STDOUT: Final = "-"


def write_document(file: str, document: dict[str, Any]) -> None:
    """Write an export, completely or not at all, and report it. CliError.

    If the document goes to stdout, or possibly to stdout, nothing else is printed there.
    """
    text = json.dumps(document, indent=2) + "\n"
    if file == STDIN_STDOUT:
        click.echo(text, nl=False)
        return
    if is_s3(file):
        from fairlead_cli.exports.object_store import ObjectStore

        address = parse_file(file)
        ObjectStore(address.bucket).write(address.key, text.encode())
    else:
        try:
            write_to(Path(file), text)
        except OSError as error:
            raise CliError(f"cannot write {file}: {error.strerror}") from error
    is_stream = not is_s3(file) and not Path(file).is_file()
    click.echo(f"Exported {describe(document)} to {file}.", err=is_stream)


def write_to(path: Path, text: str) -> None:
    """Replace a regular file as a whole, because an export is often a backup; else write to it.

    A device or pipe must not be replaced: root's export to /dev/null would leave a file there.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
    else:
        write_whole(Path(os.path.realpath(path)), text)


def read_document(file: str) -> object:
    """Return the JSON from a file, from stdin or from an object; CliError."""
    try:
        return parse_json(_read_text(file))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from error


def _read_text(file: str) -> str | bytes:
    if file == STDIN_STDOUT:
        return sys.stdin.read()
    if is_s3(file):
        from fairlead_cli.exports.object_store import ObjectStore

        address = parse_file(file)
        return ObjectStore(address.bucket).read(address.key)
    return Path(file).read_text()


def describe(document: Any) -> str:
    """Return `3 brokers, 7 topics`."""
    brokers = format_count(len(document["brokers"]), "broker")
    return f"{brokers}, {format_count(len(document['topics']), 'topic')}"
