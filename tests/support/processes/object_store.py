"""An object store with the S3 API: moto's server, in a separate process."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3
from waiting import wait_until

from fairlead_bench.peers.own_ports import HOST, take_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEYS_A_PAGE = 2
STOP_DEADLINE_S = 30.0


@dataclass
class ObjectStoreServer:
    """A server that is running."""

    url: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def environment(self) -> dict[str, str]:
        """Return variables with which a command uses this store, without other credentials."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "a secret of tests only",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def make_bucket(self, name: str = "", *, locks_objects: bool = False) -> Bucket:
        """Make a bucket that no other test has."""
        bucket = Bucket(self, name or f"bucket-{next(self._numbers)}")
        place = {"LocationConstraint": "eu-central-1"}
        bucket.call(
            "create_bucket",
            CreateBucketConfiguration=place,
            ObjectLockEnabledForBucket=locks_objects,
        )
        return bucket

    @contextmanager
    def asking_who_calls(self) -> Iterator[None]:
        """Let the store check access keys during the block; it knows none, so it refuses all."""
        self._ask_for_keys_after("0")
        try:
            yield
        finally:
            self._ask_for_keys_after("inf")

    def _ask_for_keys_after(self, calls: str) -> None:
        address = f"{self.url}/moto-api/reset-auth"
        text = {"Content-Type": "text/plain"}
        request = urllib.request.Request(address, data=calls.encode(), headers=text)
        with urllib.request.urlopen(request) as reply:
            assert reply.status == 200


@dataclass
class Bucket:
    """A bucket, with direct access for tests."""

    server: ObjectStoreServer
    name: str

    def call(self, operation: str, **fields: Any) -> Any:
        """Call an operation of the API on the bucket."""
        client = boto3.client(
            "s3",
            endpoint_url=self.server.url,
            region_name="eu-central-1",
            aws_access_key_id="a test",
            aws_secret_access_key="a test",
        )
        try:
            return getattr(client, operation)(Bucket=self.name, **fields)
        finally:
            client.close()

    def put(self, key: str, content: bytes) -> None:
        self.call("put_object", Key=key, Body=content)

    def get(self, key: str) -> bytes:
        content: bytes = self.call("get_object", Key=key)["Body"].read()
        return content

    def list_keys(self) -> list[str]:
        listing = self.call("list_objects_v2", MaxKeys=1000)
        assert not listing["IsTruncated"]
        return [each["Key"] for each in listing.get("Contents", ())]

    def deny(self, *actions: str) -> None:
        """Refuse some actions to everybody from now on."""
        resources = [f"arn:aws:s3:::{self.name}", f"arn:aws:s3:::{self.name}/*"]
        statement = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": list(actions),
            "Resource": resources,
        }
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        self.call("put_bucket_policy", Policy=json.dumps(policy))


@contextmanager
def running_object_store(directory: Path) -> Iterator[ObjectStoreServer]:
    """Run a server during the block; its data is gone afterwards."""
    (port,) = take_ports(1)
    server = ObjectStoreServer(f"http://{HOST}:{port}")
    environment = {**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": str(KEYS_A_PAGE)}
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    with (directory / "moto.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            wait_until(lambda: process.poll() is not None or _answers(server.url))
            assert process.poll() is None, (directory / "moto.log").read_text()
            yield server
        finally:
            process.terminate()
            process.wait(STOP_DEADLINE_S)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/moto-api/") as reply:
            return bool(reply.status == 200)
    except urllib.error.URLError:
        return False
