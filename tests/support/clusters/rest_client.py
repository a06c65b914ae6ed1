"""An HTTP client for tests: one request at a time, with the whole answer."""

import base64
import gzip
import http.client
import json
import socket
import ssl
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import wait_until

V2_JSON = "application/vnd.kafka.json.v2+json"
V2_BINARY = "application/vnd.kafka.binary.v2+json"
DEADLINE_S = 90.0
"""Longer than any read that a test asks for."""


@dataclass
class Reply:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reports(self) -> list[Any]:
        """Return the JSON documents in the body, one a line."""
        return [json.loads(line) for line in self.body.splitlines()]


class RestClient:
    """Talks to one broker, as `user` (name and password), with `tls` if its URL is https."""

    def __init__(
        self, url: str, *, user: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.url = url
        self._tls = tls
        self.headers: dict[str, str] = {}
        if user is not None:
            encoded = base64.b64encode(":".join(user).encode()).decode()
            self.headers["Authorization"] = f"Basic {encoded}"
        self.address = urlsplit(url).hostname or "", urlsplit(url).port or 0
        self._cluster_id: str | None = None

    @property
    def v3(self) -> str:
        """Return the path before all operations of v3."""
        if self._cluster_id is None:
            self._cluster_id = self.get("/v3/clusters").json["data"][0]["cluster_id"]
        return f"/v3/clusters/{self._cluster_id}"

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str | None = "application/json",
        headers: Mapping[str, str] | None = None,
        chunks: Iterable[bytes] | None = None,
    ) -> Reply:
        """Send one request. A body that is not bytes is sent as JSON, `chunks` one by one."""
        connection = self.connect()
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = self.headers | dict(headers or {})
        if content_type is not None and (data is not None or chunks is not None):
            sent.setdefault("Content-Type", content_type)
        try:
            connection.request(
                method, path, data if chunks is None else chunks, sent,
                encode_chunked=chunks is not None,
            )  # fmt: skip
            reply = connection.getresponse()
            content = reply.read()
        finally:
            connection.close()
        if reply.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        return Reply(reply.status, dict(reply.headers), content)

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection for a test that sends its own requests."""
        if not self.url.startswith("https"):
            return http.client.HTTPConnection(*self.address, timeout=DEADLINE_S)
        return http.client.HTTPSConnection(*self.address, timeout=DEADLINE_S, context=self._tls)

    def get(self, path: str, **options: Any) -> Reply:
        return self.ask("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Reply:
        return self.ask("POST", path, body, **options)

    def records(self, topic: str, *records: Any, **options: Any) -> Reply:
        """Produce by v3."""
        body = b"".join(
            each if isinstance(each, bytes) else json.dumps(each).encode() for each in records
        )
        return self.post(f"{self.v3}/topics/{topic}/records", body, **options)

    def socket(self) -> socket.socket:
        """Return a connection for bytes that no HTTP client would send."""
        return socket.create_connection(self.address, timeout=DEADLINE_S)


def make_topic(
    cluster: Any, partitions: int = 3, *, name: str = "", config: dict[str, str] | None = None
) -> str:
    """Create a topic; wait until all brokers can read from each of its partitions.

    Brokers learn of a topic one after the other, as in Kafka; until then they answer that there is
    none.
    """
    name = name or f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = NewTopic(name, partitions, len(cluster.brokers), config=config or {})
    admin.create_topics([wanted])[name].result(60)
    paths = [f"/topics/{name}/partitions/{each}/records?timeout=0" for each in range(partitions)]
    for broker in cluster.brokers:
        client = RestClient(broker.rest_url)
        wait_until(lambda: all(client.get(path).status == 200 for path in paths))  # noqa: B023  # now
    return name


def write_after_a_kill(client: RestClient, topic: str, record: Mapping[str, Any]) -> None:
    """Write a record, and repeat that while the answer is 50003.

    A broker may pass on the request by a connection to a process that has just died. Then it does
    not know whether the record was written, and answers 50003.
    """

    def is_written() -> bool:
        (report,) = client.records(topic, record).reports
        assert report["error_code"] in (200, 50003), report
        return bool(report["error_code"] == 200)

    wait_until(is_written)


def read_topic(bootstrap: str, topic: str, partitions: int, count: int) -> list[Message]:
    """Read this number of records from the beginning with a Kafka client."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} records"
            for message in consumer.consume(count, timeout=0.2):
                assert message.error() is None, message.error()
                found.append(message)
    finally:
        consumer.close()
    return found
