"""The settings of a broker in their typed form.

Where they come from: `fairlead_model.configs.setting_sources`. Names, defaults and checks:
`fairlead_model.configs.config_values`.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fairlead_broker.directory_path import absolute_directories
from fairlead_broker.limits import LOG_DIRECTORIES_MAX
from fairlead_broker.listener import Listener
from fairlead_broker.quota.meter import Windows
from fairlead_broker.security.access_settings import read_access_settings as read_access
from fairlead_broker.security.listener_security import read_listener_security
from fairlead_broker.security.rest_security import read_rest_security, split_rest_scheme
from fairlead_model.broker import REST_ENDPOINTS
from fairlead_model.cluster import CLUSTER_WIDE
from fairlead_model.configs.config_values import (
    BrokerValues,
    ConfigError,
    resolve_log_config,
)
from fairlead_model.configs.cordoned_directories import CORDONED_LOG_DIRS, cordon_problem
from fairlead_model.configs.endpoint_text import parse_address, parse_endpoint
from fairlead_model.configs.group_configs import validate_group_settings
from fairlead_model.configs.setting_sources import merge_settings
from fairlead_model.host_address import is_every_address
from fairlead_model.web_origin import web_origin
from fairlead_tls.peer_settings import (
    CONTROLLER_LISTENER,
    INTERNAL_LISTENER,
    check_session_urls,
    read_peer_tls,
)
from fairlead_zookeeper.access_settings import CONNECT, AccessSettings, read_access_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairlead_broker.security.access_settings import AccessSettings as Access
    from fairlead_broker.security.listener_security import ListenerSecurity
    from fairlead_model.cluster import ClusterImage
    from fairlead_model.configs.log_config import LogConfig
    from fairlead_tls.peer_settings import PeerTlsSettings


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """Where health and metrics are served."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class RestAddress:
    """Where the HTTP API is served, which address is advertised, and whom it answers."""

    host: str
    port: int
    advertised_host: str
    advertised_port: int
    """0 if the system chooses the port and the listening port is advertised."""
    allowed_hosts: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    consumer_instance_timeout_ms: int
    is_tls: bool = False


@dataclass(frozen=True, slots=True)
class CleanerLimits:
    """What compaction of one log may take."""

    dedupe_buffer_bytes: int
    io_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a broker. `values` hold all of them; the fields are those that code reads."""

    values: BrokerValues
    node_id: int
    rack: str | None
    host_name: str | None
    log_directories: tuple[str, ...]
    listeners: tuple[Listener, ...]
    access: Access
    http: HttpAddress | None
    rest: RestAddress | None
    security: Mapping[str, ListenerSecurity]
    """How each listener authenticates clients, by its name."""
    peer_tls: PeerTlsSettings | None
    """TLS between brokers; None: without TLS."""
    controller_tls: PeerTlsSettings | None
    """TLS of the session with the controller."""
    controller_sessions: tuple[str, ...]
    """Empty where controllers are only found in ZooKeeper."""
    zookeeper: AccessSettings | None
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
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_consumer_assignors: tuple[str, ...]
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    transaction_topic_num_partitions: int
    transaction_topic_replication_factor: int
    transaction_topic_min_isr: int
    transaction_topic_segment_bytes: int
    transaction_load_buffer_size: int
    transaction_max_timeout_ms: int
    transaction_timeout_check_interval_ms: int
    transactional_id_expiration_ms: int
    transactional_id_expiration_check_interval_ms: int
    recovery_point_checkpoint_interval_ms: int
    log_start_checkpoint_interval_ms: int
    high_watermark_checkpoint_interval_ms: int
    recovery_processes: int
    cleaner_enable: bool
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    max_connections: int
    max_connections_per_ip: int
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    connection_failed_authentication_delay_ms: int
    queued_max_request_bytes: int
    quota_windows: Windows
    controller_quota_burst_s: int
    fetch_max_bytes: int
    fetch_session_slots: int
    replica_lag_time_max_ms: int
    selects_replicas_by_rack: bool
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int

    def running_values(self, image: ClusterImage) -> BrokerValues:
        """Return the values, with dynamic configs of the image for this broker and for all."""
        cluster_wide = image.broker_configs.get(CLUSTER_WIDE, {})
        return self.values.altered(image.configs_of_broker(self.node_id), cluster_wide)

    def log_config(
        self,
        overrides: Mapping[str, str],
        values: BrokerValues | None = None,
        unreadable: list[str] | None = None,
    ) -> LogConfig:
        """Return the config of a topic's logs here, by the running values or the settings.

        For `unreadable` see `resolve_topic_config`.
        """
        return resolve_log_config(overrides, self.values if values is None else values, unreadable)

    @property
    def allows_unclean_election(self) -> bool:
        """Whether these settings allow unclean elections where a topic says nothing of them."""
        return self.values.value("unclean.leader.election.enable") is True

    def cleaner_limits(self, values: BrokerValues) -> CleanerLimits:
        """Return what compaction may take, by this broker's running values."""
        return CleanerLimits(
            dedupe_buffer_bytes=_required_number(values, "log.cleaner.dedupe.buffer.size"),
            io_bytes_per_second=_required_float(values, "log.cleaner.io.max.bytes.per.second"),
        )


def build_settings(
    *,
    file: Mapping[str, str],
    environment: Mapping[str, str],
    assignments: Mapping[str, str],
) -> Settings:
    """Merge the three sources and check every value; ConfigError that says what is wrong."""
    merged = merge_settings(file=file, environment=environment, assignments=assignments)
    values = BrokerValues(static=_with_absolute_directories(merged))
    validate_group_settings(values)
    listeners = parse_listeners(_texts(values, "listeners"), _texts(values, "advertised.listeners"))
    security = read_listener_security(values, listeners) | read_rest_security(values)
    node_id = _node_id(values)
    controller_tls = read_peer_tls(values, CONTROLLER_LISTENER, broker_id=node_id)
    controller_sessions = _controller_sessions(values)
    check_session_urls(controller_sessions, controller_tls)
    return Settings(
        values=values,
        node_id=node_id,
        rack=_text(values, "broker.rack"),
        host_name=_text(values, "fairlead.host.name"),
        log_directories=_log_directories(values),
        listeners=listeners,
        security=security,
        peer_tls=read_peer_tls(values, INTERNAL_LISTENER, broker_id=node_id),
        controller_tls=controller_tls,
        access=read_access(
            values, is_authenticating=any(each.is_authenticating for each in security.values())
        ),
        selects_replicas_by_rack=bool(_text(values, "replica.selector.class")),
        http=_http_address(values),
        controller_sessions=controller_sessions,
        zookeeper=read_access_settings(values),
        rest=_rest_address(values),
        cluster_secret_file=_required_text(values, "fairlead.cluster.secret.file"),
        log_level=_required_text(values, "fairlead.log.level"),
        drills_enable=_flag(values, "fairlead.drills.enable"),
        auto_create_topics_enable=_flag(values, "auto.create.topics.enable"),
        delete_topic_enable=_flag(values, "delete.topic.enable"),
        group_coordinator_rebalance_protocols=_texts(
            values, "group.coordinator.rebalance.protocols"
        ),
        group_consumer_assignors=_texts(values, "group.consumer.assignors"),
        group_consumer_migration_policy=_required_text(values, "group.consumer.migration.policy"),
        cleaner_enable=_flag(values, "log.cleaner.enable"),
        quota_windows=Windows(
            _required_number(values, "quota.window.num"),
            1000 * _required_number(values, "quota.window.size.seconds"),
        ),
        controller_quota_burst_s=_required_number(values, "controller.quota.window.num")
        * _required_number(values, "controller.quota.window.size.seconds"),
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
    "group_consumer_max_size": "group.consumer.max.size",
    "group_consumer_regex_refresh_interval_ms": "group.consumer.regex.refresh.interval.ms",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "offsets_commit_timeout_ms": "offsets.commit.timeout.ms",
    "offsets_load_buffer_size": "offsets.load.buffer.size",
    "offsets_retention_minutes": "offsets.retention.minutes",
    "offsets_retention_check_interval_ms": "offsets.retention.check.interval.ms",
    "transaction_topic_num_partitions": "transaction.state.log.num.partitions",
    "transaction_topic_replication_factor": "transaction.state.log.replication.factor",
    "transaction_topic_min_isr": "transaction.state.log.min.isr",
    "transaction_topic_segment_bytes": "transaction.state.log.segment.bytes",
    "transaction_load_buffer_size": "transaction.state.log.load.buffer.size",
    "transaction_max_timeout_ms": "transaction.max.timeout.ms",
    "transaction_timeout_check_interval_ms": (
        "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    ),
    "transactional_id_expiration_ms": "transactional.id.expiration.ms",
    "transactional_id_expiration_check_interval_ms": (
        "transaction.remove.expired.transaction.cleanup.interval.ms"
    ),
    "recovery_point_checkpoint_interval_ms": "log.flush.offset.checkpoint.interval.ms",
    "log_start_checkpoint_interval_ms": "log.flush.start.offset.checkpoint.interval.ms",
    "high_watermark_checkpoint_interval_ms": "replica.high.watermark.checkpoint.interval.ms",
    "recovery_processes": "num.recovery.threads.per.data.dir",
    "socket_send_buffer_bytes": "socket.send.buffer.bytes",
    "socket_receive_buffer_bytes": "socket.receive.buffer.bytes",
    "socket_request_max_bytes": "socket.request.max.bytes",
    "socket_listen_backlog_size": "socket.listen.backlog.size",
    "max_connections": "max.connections",
    "max_connections_per_ip": "max.connections.per.ip",
    "max_connection_creation_rate": "max.connection.creation.rate",
    "connections_max_idle_ms": "connections.max.idle.ms",
    "connection_failed_authentication_delay_ms": "connection.failed.authentication.delay.ms",
    "queued_max_request_bytes": "queued.max.request.bytes",
    "fetch_max_bytes": "fetch.max.bytes",
    "fetch_session_slots": "max.incremental.fetch.session.cache.slots",
    "replica_lag_time_max_ms": "replica.lag.time.max.ms",
    "replica_fetch_max_bytes": "replica.fetch.max.bytes",
    "replica_fetch_response_max_bytes": "replica.fetch.response.max.bytes",
    "replica_fetch_wait_max_ms": "replica.fetch.wait.max.ms",
}


def parse_listeners(texts: Iterable[str], advertised: Iterable[str]) -> tuple[Listener, ...]:
    """Parse `NAME://HOST:PORT`; a name without an advertised address advertises its own."""
    bound = _by_name("listeners", texts)
    told = _by_name("advertised.listeners", advertised)
    for name in told:
        if name not in bound:
            raise ConfigError(
                "advertised.listeners", f"advertised.listeners: there is no listener {name!r}"
            )
    listeners = []
    for name, (host, port) in bound.items():
        advertised_host, advertised_port = told.get(name, (host, port))
        if is_every_address(advertised_host):
            raise ConfigError(
                "advertised.listeners",
                f"listener {name} binds every address: advertised.listeners must name the one "
                "that clients shall use",
            )
        listeners.append(
            Listener(name, host, port, advertised_host, advertised_port, name == INTERNAL_LISTENER)
        )
    for name in REST_ENDPOINTS:
        if name in bound:
            raise ConfigError(
                "listeners", f"listeners: the name {name} belongs to fairlead.rest.listener"
            )
    if not any(not listener.is_internal for listener in listeners):
        raise ConfigError("listeners", "listeners: no listener is left for clients")
    return tuple(listeners)


def _by_name(setting: str, texts: Iterable[str]) -> dict[str, tuple[str, int]]:
    addresses: dict[str, tuple[str, int]] = {}
    for text in texts:
        name, host, port = parse_endpoint(text, setting)
        if name in addresses:
            raise ConfigError(setting, f"{setting}: two are named {name}; each needs its own name")
        addresses[name] = host, port
    return addresses


def _http_address(values: BrokerValues) -> HttpAddress | None:
    text = _text(values, "fairlead.http.listener")
    if text is None:
        return None
    host, port = parse_address("fairlead.http.listener", text)
    return HttpAddress(host, port)


def _controller_sessions(values: BrokerValues) -> tuple[str, ...]:
    """Return the addresses that are set; the default is for a controller on the same machine."""
    name = "fairlead.controller.sessions"
    is_found = values.value(CONNECT) is not None and name not in values.static
    return () if is_found else _texts(values, name)


def _node_id(values: BrokerValues) -> int:
    """Return `node.id`, or `broker.id` as it was called before (KafkaConfig: they must agree)."""
    older = values.value("broker.id")
    if not isinstance(older, int):
        return _required_number(values, "node.id")
    newer = values.value("node.id")
    if newer is not None and newer != older:
        raise ConfigError("node.id", f"node.id={newer} and broker.id={older}: name one id")
    return older


def _rest_address(values: BrokerValues) -> RestAddress | None:
    name = "fairlead.rest.advertised.listener"
    text, told = _text(values, "fairlead.rest.listener"), _text(values, name)
    if text is None:
        if told is not None:
            raise ConfigError(name, f"{name}: there is no fairlead.rest.listener")
        return None
    is_tls, address = split_rest_scheme(text)
    host, port = parse_address("fairlead.rest.listener", address)
    advertised_host, advertised_port = parse_address(name, told or address)
    if is_every_address(advertised_host):
        raise ConfigError(
            name, f"fairlead.rest.listener={text} binds every address: {name} must name one"
        )
    return RestAddress(
        host,
        port,
        advertised_host,
        advertised_port,
        _texts(values, "fairlead.rest.allowed.hosts"),
        _origins(values),
        _required_number(values, "fairlead.rest.consumer.instance.timeout.ms"),
        is_tls,
    )


def _origins(values: BrokerValues) -> tuple[str, ...]:
    """Return the origins of web pages that may use the HTTP API, as browsers write them."""
    name = "fairlead.rest.allowed.origins"
    try:
        return tuple(web_origin(text.removesuffix("/")) for text in _texts(values, name))
    except ValueError as error:
        raise ConfigError(name, f"{name}: {error}") from None


def _with_absolute_directories(static: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with log directories as clients and tools are told of them."""
    named = {name for name in ("log.dirs", CORDONED_LOG_DIRS) if name in static}
    return {**static, **{name: absolute_directories(static[name]) for name in named}}


def _log_directories(values: BrokerValues) -> tuple[str, ...]:
    """Return the folders that hold the partitions, one for each disk."""
    directories = _texts(values, "log.dirs")
    if not directories:
        raise ConfigError("log.dirs", "log.dirs must name a folder, or several")
    if len(directories) > LOG_DIRECTORIES_MAX:
        raise ConfigError(
            "log.dirs", f"log.dirs names {len(directories)} folders, {LOG_DIRECTORIES_MAX} fit"
        )
    if len({posixpath.normpath(each) for each in directories}) < len(directories):
        raise ConfigError("log.dirs", "log.dirs names a folder twice")
    problem = cordon_problem(values.static.get(CORDONED_LOG_DIRS, ""), directories)
    if problem is not None:
        raise ConfigError(CORDONED_LOG_DIRS, problem)
    return directories


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
