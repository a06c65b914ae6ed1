"""One bucket of an object store, through the S3 API. Every error is a message for users.

The store's address and the credentials are set as for AWS's own tools: `AWS_ENDPOINT_URL`,
`AWS_REGION`, `AWS_ACCESS_KEY_ID`, profiles, and roles of pods and machines.
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import TYPE_CHECKING, Any, Final

from fairlead_cli.errors import CliError, InputError
from fairlead_cli.exports.object_store_errors import CHECK_ENDPOINT, store_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_TIMEOUT_S: Final = 5
READ_TIMEOUT_S: Final = 30
DOCUMENT_BYTES_MAX: Final = 1 << 28
"""Metadata is much smaller: a partition takes some 200 bytes. For a wrong object this gives an
error before the object fills the memory."""


class ObjectStore:
    """The objects of one bucket."""

    def __init__(self, bucket: str) -> None:
        """Build a client, without a request; CliError."""
        self.bucket = bucket
        self._client = _make_client()

    def read(self, key: str) -> bytes:
        """Return an object; InputError if it does not exist, or is too large for a document."""
        with self._errors("read", key):
            from botocore.exceptions import ClientError

            try:
                reply = self._client.get_object(Bucket=self.bucket, Key=key)
            except ClientError as error:
                if error.response["Error"]["Code"] == "NoSuchKey":
                    raise InputError(
                        f"cannot read {self.place(key)}: there is no such object"
                    ) from error
                raise
            with reply["Body"] as body:
                content: bytes = body.read(DOCUMENT_BYTES_MAX + 1)
        if len(content) > DOCUMENT_BYTES_MAX:
            raise InputError(
                f"{self.place(key)} is larger than {DOCUMENT_BYTES_MAX >> 20} MiB: "
                "this is no metadata document"
            )
        return content

    def write(self, key: str, content: bytes) -> None:
        """Put an object in one request: a reader sees all of it or nothing."""
        # A bucket with object lock requires the digest, and every store checks it.
        digest = base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
        with self._errors("write", key):
            reply = self._client.put_object(
                Bucket=self.bucket, Key=key, Body=content, ContentMD5=digest
            )
        if "ETag" not in reply:
            raise CliError(
                f"cannot write {self.place(key)}: {self.endpoint} does not answer as the S3 API "
                "does",
                hint=CHECK_ENDPOINT,
            )

    def list_keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys with this prefix that have no further '/', page by page."""
        with self._errors("list", prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=prefix, Delimiter="/"
            )
            for page in pages:
                for each in page.get("Contents", ()):
                    yield each["Key"]

    def remove(self, key: str) -> None:
        """Delete an object, which may be gone already."""
        with self._errors("remove", key):
            self._client.delete_object(Bucket=self.bucket, Key=key)

    @property
    def endpoint(self) -> str:
        """URL of the store."""
        return str(self._client.meta.endpoint_url)

    def place(self, key: str) -> str:
        """Return the address of a key, as a user writes it."""
        return f"s3://{self.bucket}/{key}"

    def _errors(self, verb: str, key: str) -> Any:
        return store_errors(f"{verb} {self.place(key)}", self.endpoint)


def _make_client() -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise CliError(
            "s3:// needs the library boto3, which is not installed",
            hint="Install it:  pip install 'fairlead[s3]'",
        ) from error
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"mode": "standard"},
        # Stores other than AWS refuse the library's default checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    # The library itself reads only AWS_DEFAULT_REGION.
    region = os.environ.get("AWS_REGION") or None
    with store_errors("make a client for it", "the object store"):
        session = boto3.Session(region_name=region)
        try:
            return session.client("s3", config=config)
        except ValueError as error:
            raise CliError(f"AWS_ENDPOINT_URL: {error}", hint=CHECK_ENDPOINT) from error
