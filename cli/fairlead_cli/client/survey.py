"""The same request to every broker of a cluster, in parallel.

These are plain Kafka requests, because librdkafka returns no broker's answer before one that hangs
has used up the whole time-out.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from fairlead_cli.client.answering import Address, find_answering
from fairlead_cli.client.connection import fetch_metadata
from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_wire.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from confluent_kafka.admin import AdminClient

Answer = TypeVar("Answer")
# How long the first answer may take, and how much longer the others: twice the time after which the
# controller fences a silent broker. A busy machine keeps a healthy broker from its processor for
# longer than a second, and its part of the answer would be missing.
PATIENCE_S = 15.0
GRACE_S = 4.0
# The same for a broker that was waited for in vain before: a command asks more than one question.
SILENT_BEFORE_S = 1.0
ASKED_AT_ONCE = 32
_silent: set[Address] = set()
"""The brokers that this command has waited for in vain."""


def ask_every_broker(
    admin: AdminClient, ask: Callable[[Address], Answer]
) -> tuple[dict[int, Answer], list[str]]:
    """Return the answers by broker, and the brokers without an answer, in words.

    `ask` runs in threads, and raises CliError if a broker does not answer or refuses.
    """
    ids = find_brokers(admin)
    return ask_brokers(ids, lambda _id, at: ask(at))


def find_brokers(admin: AdminClient) -> dict[Address, int]:
    """Return the ids of all brokers by their addresses. CliError if none answers."""
    brokers = fetch_metadata(admin).brokers.values()
    return {Address(broker.host, broker.port): broker.id for broker in brokers}


def ask_brokers(
    ids: Mapping[Address, int], ask: Callable[[int, Address], Answer]
) -> tuple[dict[int, Answer], list[str]]:
    """Do the same as `ask_every_broker` for known brokers; `ask` also gets the id."""
    heard, silent = _find_answering(ids)
    untold = [f"broker {ids[at]} at {at} does not answer" for at in silent]
    answers: dict[int, Answer] = {}

    def try_asking(at: Address) -> Answer | CliError:
        try:
            return ask(ids[at], at)
        except CliError as error:
            return error

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        for at, answer in zip(heard, pool.map(try_asking, heard), strict=True):
            if isinstance(answer, CliError):
                untold.append(f"broker {ids[at]}: {answer.message}")
            else:
                answers[ids[at]] = answer
    return answers, sorted(untold)


def _find_answering(brokers: Collection[Address]) -> tuple[list[Address], list[Address]]:
    """Return the brokers that answer, and those that do not."""
    fresh = [at for at in brokers if at not in _silent]
    found = find_answering(fresh, patience_s=PATIENCE_S, grace_s=GRACE_S)
    late = find_answering(
        [at for at in brokers if at in _silent],
        patience_s=SILENT_BEFORE_S,
        grace_s=SILENT_BEFORE_S,
    )
    _silent.update(found.reasons)
    return [*found.answering, *late.answering], [*found.reasons, *late.reasons]


def newest_version(at: Address, api_key: int, version_max: int) -> int | None:
    """Return the newest version that both sides know; None if the broker has no such API."""
    offered = call_broker(at.host, at.port, ApiVersionsRequest(), 0)
    newest = {api.api_key: api.max_version for api in offered.api_keys}.get(api_key)
    return None if newest is None else min(version_max, newest)
