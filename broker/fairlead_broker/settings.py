"""The settings of a broker: where they come from, and their typed form.

Strongest first: `--set NAME=VALUE`, environment (`FAIRLEAD_LOG_DIRS` for `log.dirs`), the
`server.properties` file, the default. Names, defaults and checks live in
`fairlead_model.configs`; an unknown name is an error that names the nearest valid one, except in
the environment, where container platforms put variables of their own: there it is a warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from fairlead_broker.listener import Listener
from fairlead_model.configs import (
    BROKER_CONFIGS,
    BrokerValues,
    ConfigError,
    resolve_log_config,
    validate_broker_config,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairlead_model.log_config import LogConfig

ENVIRONMENT_PREFIX: Final = "FAIRLEAD_"
INTERNAL_LISTENER: Final = "INTERNAL"
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Where health and metrics are served."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Settings:
    """What a broker was told. `values` hold every setting; the fields are those that code reads."""

    values: BrokerValues
    node_id: int
    rack: str | None
    host_name: str | None
    log_directory: str
    listeners: tuple[Listener, ...]
    http: HttpAddress | None
    controller_sessions: tuple[str, ...]
    cluster_secret_file: str
    log_level: str
    drills_enable: bool
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    retention_check_interval_ms: int
    recovery_point_checkpoint_interval_ms: int
    log_start_checkpoint_interval_ms: int
    high_watermark_checkpoint_interval_ms: int
    recovery_processes: int
    cleaner_enable: bool
    cleaner_backoff_ms: int
    cleaner_dedupe_buffer_bytes: int
    cleaner_io_bytes_per_second: float
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    max_connections: int
    max_connections_per_ip: int
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    queued_max_request_bytes: int
    fetch_max_bytes: int
    fetch_session_slots: int
    replica_lag_time_max_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of a topic's logs on this broker."""
        return resolve_log_config(overrides, self.values)


def environment_name(name: str) -> str:
    """The variable that sets a config: `log.dirs` -> `FAIRLEAD_LOG_DIRS`."""
    return ENVIRONMENT_PREFIX + name.removeprefix("fairlead.").replace(".", "_").upper()


NOT_SETTINGS: Final = frozenset({"FAIRLEAD_SUPERVISOR_FD", "FAIRLEAD_ID_BASE"})
"""What process 1 of a container and the pod say in the environment; no misspelt settings."""

_BY_VARIABLE: Final = {environment_name(name): name for name in BROKER_CONFIGS}


def read_properties(text: str) -> dict[str, str]:
    """Names and values of a `server.properties` text; ConfigError for a line without '='."""
    values: dict[str, str] = {}
    pending = ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\"):
            pending = line[:-1]
            continue
        name, separator, value = line.partition("=")
        if not separator:
            raise ConfigError(line, f"line {number}: {line!r} is not NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def read_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Settings among the environment variables, and a warning for each likely misspelling."""
    values: dict[str, str] = {}
    warnings = []
    for variable, value in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS:
            continue
        if variable in _BY_VARIABLE:
            values[_BY_VARIABLE[variable]] = value
            continue
        near = get_close_matches(variable, _BY_VARIABLE, n=1, cutoff=0.85)
        if near:
            warnings.append(f"{variable} is no setting; did you mean {near[0]}?")
    return values, warnings


def read_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Settings given as NAME=VALUE arguments."""
    values = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise ConfigError(assignment, f"{assignment!r} is not NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def build_settings(
    *,
    file: Mapping[str, str],
    environment: Mapping[str, str],
    assignments: Mapping[str, str],
) -> Settings:
    """Merge the three sources and check every value; ConfigError that says what is wrong."""
    merged = {**file, **environment, **assignments}
    for name, text in merged.items():
        validate_broker_config(name, text)
    values = BrokerValues(static=merged)
    return Settings(
        values=values,
        node_id=_required_number(values, "node.id"),
        rack=_text(values, "broker.rack"),
        host_name=_text(values, "fairlead.host.name"),
        log_directory=_log_directory(values),
        listeners=parse_listeners(
            _texts(values, "listeners"), _texts(values, "advertised.listeners")
        ),
        http=_http_address(values),
        controller_sessions=_texts(values, "fairlead.controller.sessions"),
        cluster_secret_file=_required_text(values, "fairlead.cluster.secret.file"),
        log_level=_required_text(values, "fairlead.log.level"),
        drills_enable=_flag(values, "fairlead.drills.enable"),
        auto_create_topics_enable=_flag(values, "auto.create.topics.enable"),
        delete_topic_enable=_flag(values, "delete.topic.enable"),
        cleaner_enable=_flag(values, "log.cleaner.enable"),
        cleaner_io_bytes_per_second=_required_float(values, "log.cleaner.io.max.bytes.per.second"),
        **{field: _required_number(values, name) for field, name in _NUMBERS.items()},
    )


_NUMBERS: Final = {
    "num_partitions": "num.partitions",
    "default_replication_factor": "default.replication.factor",
    "offsets_topic_num_partitions": "offsets.topic.num.partitions",
    "offsets_topic_replication_factor": "offsets.topic.replication.factor",
    "offsets_topic_segment_bytes": "offsets.topic.segment.bytes",
    "group_min_session_timeout_ms": "group.min.session.timeout.ms",
    "group_max_session_timeout_ms": "group.max.session.timeout.ms",
    "group_initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "group_max_size": "group.max.size",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "offsets_commit_timeout_ms": "offsets.commit.timeout.ms",
    "offsets_load_buffer_size": "offsets.load.buffer.size",
    "offsets_retention_minutes": "offsets.retention.minutes",
    "offsets_retention_check_interval_ms": "offsets.retention.check.interval.ms",
    "retention_check_interval_ms": "log.retention.check.interval.ms",
    "recovery_point_checkpoint_interval_ms": "log.flush.offset.checkpoint.interval.ms",
    "log_start_checkpoint_interval_ms": "log.flush.start.offset.checkpoint.interval.ms",
    "high_watermark_checkpoint_interval_ms": "replica.high.watermark.checkpoint.interval.ms",
    "cleaner_backoff_ms": "log.cleaner.backoff.ms",
    "cleaner_dedupe_buffer_bytes": "log.cleaner.dedupe.buffer.size",
    "recovery_processes": "num.recovery.threads.per.data.dir",
    "socket_send_buffer_bytes": "socket.send.buffer.bytes",
    "socket_receive_buffer_bytes": "socket.receive.buffer.bytes",
    "socket_request_max_bytes": "socket.request.max.bytes",
    "socket_listen_backlog_size": "socket.listen.backlog.size",
    "max_connections": "max.connections",
    "max_connections_per_ip": "max.connections.per.ip",
    "max_connection_creation_rate": "max.connection.creation.rate",
    "connections_max_idle_ms": "connections.max.idle.ms",
    "queued_max_request_bytes": "queued.max.request.bytes",
    "fetch_max_bytes": "fetch.max.bytes",
    "fetch_session_slots": "max.incremental.fetch.session.cache.slots",
    "replica_lag_time_max_ms": "replica.lag.time.max.ms",
    "replica_fetch_max_bytes": "replica.fetch.max.bytes",
    "replica_fetch_response_max_bytes": "replica.fetch.response.max.bytes",
    "replica_fetch_wait_max_ms": "replica.fetch.wait.max.ms",
}


def parse_listeners(texts: Iterable[str], advertised: Iterable[str]) -> tuple[Listener, ...]:
    """`NAME://HOST:PORT` to listeners; a name without an advertised address tells its own."""
    bound = {name: (host, port) for name, host, port in map(parse_endpoint, texts)}
    told = {name: (host, port) for name, host, port in map(parse_endpoint, advertised)}
    for name in told:
        if name not in bound:
            raise ConfigError(
                "advertised.listeners", f"advertised.listeners: there is no listener {name!r}"
            )
    listeners = []
    for name, (host, port) in bound.items():
        advertised_host, advertised_port = told.get(name, (host, port))
        if advertised_host in ("", "0.0.0.0", "::"):  # noqa: S104 (refused, not bound)
            raise ConfigError(
                "advertised.listeners",
                f"listener {name} binds every address: advertised.listeners must name the one "
                "that clients shall use",
            )
        listeners.append(
            Listener(name, host, port, advertised_host, advertised_port, name == INTERNAL_LISTENER)
        )
    if not any(not listener.is_internal for listener in listeners):
        raise ConfigError("listeners", "listeners: no listener is left for clients")
    return tuple(listeners)


def parse_endpoint(text: str) -> tuple[str, str, int]:
    """Split `NAME://HOST:PORT`; IPv6 addresses stand in brackets."""
    name, separator, address = text.partition("://")
    if not separator or not name.strip():
        raise ConfigError("listeners", f"listeners: {text!r} is not NAME://HOST:PORT")
    host, port = parse_address("listeners", address)
    return name.strip().upper(), host, port


def parse_address(setting: str, address: str) -> tuple[str, int]:
    """Split `HOST:PORT`; ConfigError that names the setting."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or not port.isdecimal() or not 0 <= int(port) <= _PORT_MAX:
        raise ConfigError(setting, f"{setting}: {address!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _http_address(values: BrokerValues) -> HttpAddress | None:
    text = _text(values, "fairlead.http.listener")
    if text is None:
        return None
    host, port = parse_address("fairlead.http.listener", text)
    return HttpAddress(host, port)


def _log_directory(values: BrokerValues) -> str:
    directories = _texts(values, "log.dirs")
    if len(directories) != 1:
        raise ConfigError("log.dirs", f"log.dirs: name one folder, not {len(directories)}")
    return directories[0]


def _text(values: BrokerValues, name: str) -> str | None:
    value = values.value(name)
    return None if value is None else str(value)


def _required_text(values: BrokerValues, name: str) -> str:
    text = _text(values, name)
    if not text:
        raise ConfigError(name, f"{name} must be set")
    return text


def _texts(values: BrokerValues, name: str) -> tuple[str, ...]:
    value = values.value(name)
    return value if isinstance(value, tuple) else ()


def _flag(values: BrokerValues, name: str) -> bool:
    return values.value(name) is True


def _required_number(values: BrokerValues, name: str) -> int:
    value = values.value(name)
    if not isinstance(value, int):
        raise ConfigError(name, f"{name} must be set")
    return value


def _required_float(values: BrokerValues, name: str) -> float:
    value = values.value(name)
    if not isinstance(value, int | float):
        raise ConfigError(name, f"{name} must be set")
    return float(value)
