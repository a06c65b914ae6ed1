"""Load over HTTP: batches of records on persistent connections, one request at a time on each."""

import http.client
import json
import sys
import threading
from typing import Any

from fairlead_bench.loads.load_process import serve_load

TIMEOUT_S = 60
CONTENT_TYPES = {"v3": "application/json", "v2": "application/vnd.kafka.json.v2+json"}


def build_body(shape: str, batch: int, size: int) -> bytes:
    text = "x" * size
    if shape == "v2":
        records = [{"value": {"number": number, "text": text}} for number in range(batch)]
        return json.dumps({"records": records}).encode()
    return b"".join(
        json.dumps(
            {"value": {"type": "JSON", "data": {"number": number, "text": text}}}
        ).encode()
        for number in range(batch)
    )  # fmt: skip


class Sender(threading.Thread):
    """One connection."""

    def __init__(self, port: int, path: str, body: bytes, content_type: str, count: int) -> None:
        super().__init__()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self._request = ("POST", path, body, {"Content-Type": content_type})
        self._count = count
        self.failures = 0
        self.error: Exception | None = None
        """The error with which it ended before it had sent everything."""

    def send(self) -> None:
        self._connection.request(*self._request)
        answer = self._connection.getresponse()
        text = answer.read()
        # v2 has null if all went well, v3 has 200.
        if answer.status != 200 or b'"error":"' in text or b'"message"' in text:
            self.failures += 1

    def run(self) -> None:
        try:
            for _ in range(self._count):
                self.send()
        except (OSError, http.client.HTTPException) as error:
            self.error = error


def main() -> None:
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    shape, batch = arguments["shape"], arguments["batch"]
    body = build_body(shape, batch, arguments["size"])
    senders = [
        Sender(
            arguments["rest_port"],
            arguments["path"],
            body,
            CONTENT_TYPES[shape],
            arguments["requests"],
        )
        for _ in range(arguments["connections"])
    ]
    for sender in senders:
        sender.send()

    def work() -> dict[str, Any]:
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        for sender in senders:
            if sender.error is not None:
                raise RuntimeError("a connection ended") from sender.error
        failures = sum(sender.failures for sender in senders)
        if failures:
            raise RuntimeError(f"{failures} requests failed")
        return {"records": batch * arguments["requests"] * len(senders)}

    serve_load(work)


if __name__ == "__main__":
    main()
