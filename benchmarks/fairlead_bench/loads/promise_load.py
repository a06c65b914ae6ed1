"""Writes to several topics at a steady rate with one kind of acknowledgement, during kills.

One librdkafka producer without retries, which would hide what an answer is worth, and without
idempotence, which acks=0 and acks=1 cannot have. It prints
`ready` once the first record of each topic is acknowledged, continues until its standard input
ends, waits for outstanding answers, and writes the history of each topic to `directory`: eight
bytes for each record, as in `fairlead_cli.drill.history`.
"""

import json
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from fairlead_cli.drill.history import History, KeyHistory, encode_value

RECORD_BYTES: Final = 100
PARTITION: Final = 0
# Longer than a kill's effect: a record that waits for a leader does not time out.
MESSAGE_TIMEOUT_MS: Final = 60_000
FLUSH_TIMEOUT_S: Final = 90
POLL_S: Final = 0.001


def history_file(directory: Path, topic: str) -> Path:
    return directory / f"{topic}.history"


def load_history(directory: Path, topic: str) -> History:
    """Return the history that a load has written."""
    history = History()
    key = history.add_key(topic, PARTITION)
    key.offsets.frombytes(history_file(directory, topic).read_bytes())
    return history


def settle(key: KeyHistory, sequence: int, error: object, _message: object) -> None:
    """Store no offset: with acks=0 the client invents one."""
    if error is None:
        key.note_acknowledged(sequence, None)
    else:
        key.note_refused(sequence)


def run(arguments: dict[str, Any]) -> None:
    topics: list[str] = arguments["topics"]
    producer = Producer(
        {
            "bootstrap.servers": arguments["bootstrap"],
            "acks": arguments["acks"],
            "retries": 0,
            "message.timeout.ms": MESSAGE_TIMEOUT_MS,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
    )
    keys = [History().add_key(topic, PARTITION) for topic in topics]

    def send(key: KeyHistory) -> None:
        sequence = key.note_sent()
        producer.produce(
            key.key,
            encode_value(key.key, sequence, RECORD_BYTES),
            key.key,
            partition=PARTITION,
            on_delivery=partial(settle, key, sequence),
        )

    for key in keys:
        send(key)
    if producer.flush(FLUSH_TIMEOUT_S):
        raise RuntimeError("the first records were not acknowledged")
    is_ended = threading.Event()

    def follow_input() -> None:
        sys.stdin.read()
        is_ended.set()

    threading.Thread(target=follow_input, daemon=True).start()
    print("ready", flush=True)
    due_s = time.monotonic()
    while not is_ended.is_set():
        for key in keys:
            send(key)
        # A late record delays those after it: there are no bursts to catch up.
        due_s = max(due_s + 1 / arguments["rate"], time.monotonic())
        producer.poll(0)
        while (wait_s := due_s - time.monotonic()) > 0:
            producer.poll(min(wait_s, POLL_S))
    producer.flush(FLUSH_TIMEOUT_S)
    for key in keys:
        history_file(Path(arguments["directory"]), key.key).write_bytes(key.offsets.tobytes())


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
