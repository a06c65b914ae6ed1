"""`kafka.*`: the settings of Kafka clients that a source or sink may have.

A source implements the protocol itself. It uses the settings of the Java consumer that apply to it,
ignores those that only tune the Java consumer, and refuses those that would change what the query
reads. A sink does the same with the settings of the Java producer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from fairlead_spark import limits
from fairlead_spark.client_security import BOOTSTRAP, read_client_file, read_security
from fairlead_spark.errors import OptionError

PREFIX: Final = "kafka."
_ADDRESS: Final = re.compile(
    r"(\[(?P<ipv6>[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%[^\]]+)?)\]|(?P<name>[^\s:\[\]/@]+))"
    r":(?P<port>[0-9]{1,5})"
)
_PORT_MAX: Final = 65_535
SHARED: Final = ("bootstrap.servers", "client.id", "request.timeout.ms", "security.protocol")
READ: Final = (
    *SHARED,
    "group.id",
    "isolation.level",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "receive.buffer.bytes",
    "check.crcs",
)
WRITTEN: Final = (
    *SHARED,
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.type",
    "delivery.timeout.ms",
    "max.request.size",
    "transaction.timeout.ms",
)
# They only tune Java's client, and change no result of a query.
WITHOUT_EFFECT: Final = (
    "allow.auto.create.topics",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "heartbeat.interval.ms",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.max.age.ms",
    "partition.assignment.strategy",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
    "session.timeout.ms",
)
PROTECTED: Final = {
    "auto.offset.reset": "startingOffsets says where a query begins",
    "enable.auto.commit": "done batches are committed to the group kafka.group.id",
    "enable.idempotence": "it is always on",
    "group.instance.id": "a query has one of its own",
    "interceptor.classes": "there is no Java class to load",
    "key.deserializer": "keys are binary: cast them in the query",
    "key.serializer": "keys are binary or strings: cast them in the query",
    "partitioner.class": "keys choose as in Java; to choose otherwise write a column partition",
    "transactional.id": "exactlyOnce names each task's transaction",
    "value.deserializer": "values are binary: cast them in the query",
    "value.serializer": "values are binary or strings: cast them in the query",
}
_WHOLE: Final = re.compile(r"\s*[+-]?[0-9]{1,19}\s*")
NUMBER_MAX: Final = 2**31 - 1
"""Of those of Kafka's settings that are an int."""
COUNT_MAX: Final = 2**63 - 1
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")


@dataclass(frozen=True)
class ClientSettings:
    """Settings of the connections to brokers.

    `producer` is only for the sink: settings by Java's names and their values.
    """

    bootstrap_servers: str
    config_file: str | None = None
    """The file with the settings of encryption and login."""
    client_id: str = "fairlead-spark"
    group_id: str | None = None
    is_read_committed: bool = False
    is_crc_checked: bool = True
    fetch_bytes: int = limits.FETCH_BYTES
    fetch_min_bytes: int = 1
    fetch_wait_ms: int = 500
    receive_buffer_bytes: int = limits.RECEIVE_BUFFER_BYTES
    request_timeout_s: float = limits.REQUEST_TIMEOUT_S
    producer: tuple[tuple[str, str], ...] = ()


def is_client_option(name: str) -> bool:
    return name.startswith(PREFIX)


def read_client_settings(
    options: Mapping[str, str], *, is_sink: bool, config_file: str | None
) -> ClientSettings:
    """Return the settings among `options`; OptionError for an unknown or reserved one.

    The addresses may be in the file.
    """
    values = {
        name.lower().removeprefix(PREFIX): value
        for name, value in options.items()
        if is_client_option(name.lower())
    }
    _check_names(values, WRITTEN if is_sink else READ)
    read_security(config_file)
    filed = {} if config_file is None else read_client_file(config_file)
    servers = (values.get(BOOTSTRAP) or filed.get(BOOTSTRAP, "")).strip()
    if not servers:
        raise OptionError("kafka.bootstrap.servers is missing: give it as 'host:9092,other:9092'")
    parse_addresses(servers)
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise OptionError(
            f"kafka.security.protocol is {protocol}: here a file says how to encrypt and log in, "
            "and the option clientConfig names it"
        )
    isolation = values.get("isolation.level", ISOLATION_LEVELS[0]).lower()
    if isolation not in ISOLATION_LEVELS:
        raise OptionError(
            f"kafka.isolation.level is '{isolation}'; it can be {' or '.join(ISOLATION_LEVELS)}"
        )
    given = {
        "client_id": values.get("client.id"),
        "group_id": _group_id(values),
        "fetch_bytes": _fetch_bytes(values),
        "fetch_min_bytes": _number(values, "fetch.min.bytes"),
        "fetch_wait_ms": _number(values, "fetch.max.wait.ms"),
        "receive_buffer_bytes": _receive_buffer(values),
        "request_timeout_s": _seconds(_number(values, "request.timeout.ms", least=1)),
    }
    return ClientSettings(
        bootstrap_servers=servers,
        config_file=config_file,
        is_read_committed=isolation == "read_committed",
        is_crc_checked=_flag(values, "check.crcs", "true"),
        producer=_producer_settings(values) if is_sink else (),
        **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
    )


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """`host:port,…`, an IPv6 address in brackets; OptionError for anything else."""
    addresses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        found = _ADDRESS.fullmatch(part)
        if found is None or not 0 < int(found["port"]) <= _PORT_MAX:
            raise OptionError(f"kafka.bootstrap.servers: '{part}' is not host:port")
        addresses.append((found["ipv6"] or found["name"], int(found["port"])))
    if not addresses:
        raise OptionError("kafka.bootstrap.servers names no address")
    return addresses


def _check_names(values: Mapping[str, str], served: tuple[str, ...]) -> None:
    for name in values:
        if name in PROTECTED:
            raise OptionError(f"kafka.{name} cannot be set here: {PROTECTED[name]}")
        if name not in served and name not in WITHOUT_EFFECT:
            close = get_close_matches(name, (*served, *WITHOUT_EFFECT), n=1)
            hint = f": did you mean 'kafka.{close[0]}'?" if close else ""
            raise OptionError(f"unknown or unsupported setting 'kafka.{name}'{hint}")


def _producer_settings(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    names = [name for name in WRITTEN if name in values and name not in SHARED]
    return tuple((name, values[name]) for name in names)


def _fetch_bytes(values: Mapping[str, str]) -> int | None:
    """Return the smaller of the two limits, because a fetch asks for only one partition."""
    bounds = [_number(values, name) for name in ("fetch.max.bytes", "max.partition.fetch.bytes")]
    return min((bound for bound in bounds if bound is not None), default=None)


def _receive_buffer(values: Mapping[str, str]) -> int | None:
    if values.get("receive.buffer.bytes", "").strip() == "-1":
        return 0  # The system's default.
    return _number(values, "receive.buffer.bytes")


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _group_id(values: Mapping[str, str]) -> str | None:
    group = values.get("group.id")
    if group is not None and not group.strip():
        raise OptionError("kafka.group.id is empty: name a group, or leave it out")
    return group


def _flag(values: Mapping[str, str], name: str, default: str) -> bool:
    text = values.get(name, default).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(f"kafka.{name} is '{values[name]}'; it can be true or false")
    return text == "true"


def _number(values: Mapping[str, str], name: str, *, least: int = 0) -> int | None:
    text = values.get(name)
    return None if text is None else read_whole(f"kafka.{name}", text, least=least)


def read_whole(name: str, text: str, *, least: int, most: int = NUMBER_MAX) -> int:
    """Return the number in an option; OptionError for anything else.

    Only digits are accepted: Python accepts more forms of numbers than Spark and Java do.
    """
    if _WHOLE.fullmatch(text) is None:
        raise OptionError(f"{name} is '{text}', which is no whole number")
    number = int(text)
    if number < least:
        raise OptionError(f"{name} is {number}; it must be {least} or more")
    if number > most:
        raise OptionError(f"{name} is {number}; it must be {most} or less")
    return number
