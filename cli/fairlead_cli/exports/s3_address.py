"""`s3://BUCKET/KEY`: the address of an object, or of a folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fairlead_cli.errors import InputError

SCHEME: Final = "s3://"
_BUCKET: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")
"""The names that the library accepts. Stores other than AWS allow more than AWS does."""


@dataclass(frozen=True, slots=True)
class S3Address:
    """A bucket with a key, or with a prefix of keys."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"


def is_s3(place: str) -> bool:
    """Tell whether a place is in an object store, not on this machine."""
    return place.startswith(SCHEME)


def parse_file(text: str) -> S3Address:
    """Read the address of one object; InputError."""
    address = _parse(text)
    if not address.key or address.key.endswith("/"):
        raise InputError(
            f"{text} names a folder, not a file",
            hint=f"Name an object in it:  {text.rstrip('/')}/metadata.json",
        )
    return address


def parse_folder(text: str) -> S3Address:
    """Read the address of a folder: its key ends with '/' or is empty; InputError."""
    address = _parse(text)
    folder = address.key.rstrip("/")
    return S3Address(address.bucket, f"{folder}/" if folder else "")


def _parse(text: str) -> S3Address:
    bucket, _, key = text.removeprefix(SCHEME).partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InputError(f"{text!r} names no bucket", hint="Write s3://BUCKET/NAME.")
    return S3Address(bucket, key)
