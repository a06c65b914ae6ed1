"""Asks a group's coordinator again while it moves, loads, or is only being made.

Each lasts a second or two, and librdkafka hands its errors out instead of waiting.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from fairlead_cli.client.connection import REQUEST_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from confluent_kafka import KafkaError

Answer = TypeVar("Answer")
RETRY_PAUSE_S = 0.25
PASSING = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS")


def is_passing(error: KafkaError) -> bool:
    """Tell whether the same question may have an answer in a moment."""
    return error.name() in PASSING


def settle(
    first: Future[Answer],
    ask: Callable[[], Future[Answer]],
    find_error: Callable[[Answer], KafkaError | None] = lambda _answer: None,
) -> Answer:
    """Return the answer of `first`, or else repeat `ask`; raise its last KafkaException.

    `find_error` looks for an error inside an answer; an error that does not pass stays in it.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    future = first
    while True:
        try:
            answer = future.result()
        except KafkaException as exception:
            if not is_passing(exception.args[0]) or time.monotonic() >= deadline:
                raise
        else:
            error = find_error(answer)
            if error is None or not is_passing(error) or time.monotonic() >= deadline:
                return answer
        time.sleep(RETRY_PAUSE_S)
        future = ask()
