"""Repeat a request while a group's coordinator moves, loads, or is being created.

Each takes a second or two, and librdkafka returns these errors instead of waiting.
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
    """Tell whether the same request may succeed in a moment."""
    return error.name() in PASSING


def settle(
    first: Future[Answer],
    ask: Callable[[], Future[Answer]],
    find_error: Callable[[Answer], KafkaError | None] = lambda _answer: None,
) -> Answer:
    """Return the answer of `first`, else repeat `ask`; raise its last KafkaException.

    `find_error` finds an error inside an answer; an error that does not pass stays in the answer.
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
