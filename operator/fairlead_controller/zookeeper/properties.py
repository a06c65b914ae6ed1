"""What the settings of a controller on plain hosts mean: `controller.properties`. Pure.

The names are Kafka's, as its controllers have them: `node.id`, `listeners` with one listener
CONTROLLER, `advertised.listeners`, `log.dirs`, `zookeeper.connect`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fairlead_model.configs.config_values import BrokerValues, ConfigError
from fairlead_model.configs.controller_configs import ControllerConfigs, read_controller_configs
from fairlead_model.configs.endpoint_text import parse_address, parse_endpoint
from fairlead_model.host_address import is_every_address
from fairlead_tls.peer_settings import CONTROLLER_LISTENER, PeerTlsSettings, read_peer_tls
from fairlead_zookeeper.access_settings import CONNECT, AccessSettings, read_access_settings
from fairlead_zookeeper.znodes import CONTROLLER_ID_MIN

LISTENERS_DEFAULT: Final = ("CONTROLLER://127.0.0.1:9191",)
HTTP_DEFAULT: Final = "127.0.0.1:8170"


@dataclass(frozen=True, slots=True)
class ControllerProperties:
    """The settings, before any file that they name has been read."""

    node_id: int
    host: str
    session_port: int
    advertised_host: str
    http_host: str
    http_port: int
    log_directory: str
    secret_file: str
    zookeeper: AccessSettings
    tls: PeerTlsSettings | None
    """TLS of the sessions, and between controllers; None: plaintext."""
    log_level: str
    configs: ControllerConfigs
    default_partitions: int
    default_replication_factor: int


def read_controller_properties(settings: Mapping[str, str]) -> ControllerProperties:
    """Read settings whose names and values have been checked one by one; ConfigError if wrong."""
    values = BrokerValues(static=settings)
    zookeeper = read_access_settings(values)
    if zookeeper is None:
        raise ConfigError(CONNECT, f"{CONNECT} must be set: a controller keeps the metadata there")
    host, port, advertised = _listener(values)
    http_host, http_port = parse_address(
        "fairlead.http.listener", str(values.value("fairlead.http.listener") or HTTP_DEFAULT)
    )
    directories = values.value("log.dirs")
    if not isinstance(directories, tuple) or len(directories) != 1:
        raise ConfigError("log.dirs", "log.dirs must name one folder")
    return ControllerProperties(
        node_id=_node_id(values),
        host=host,
        session_port=port,
        advertised_host=advertised,
        http_host=http_host,
        http_port=http_port,
        log_directory=directories[0],
        secret_file=_text(values, "fairlead.cluster.secret.file"),
        zookeeper=zookeeper,
        tls=read_peer_tls(values, CONTROLLER_LISTENER, broker_id=None),
        log_level=_text(values, "fairlead.log.level"),
        configs=read_controller_configs(settings),
        default_partitions=_number(values, "num.partitions"),
        default_replication_factor=_number(values, "default.replication.factor"),
    )


def _node_id(values: BrokerValues) -> int:
    number = _number(values, "node.id")
    if number < CONTROLLER_ID_MIN:
        raise ConfigError(
            "node.id",
            f"node.id={number}: a controller's is {CONTROLLER_ID_MIN} or above, so that it is no "
            "broker's",
        )
    return number


def _listener(values: BrokerValues) -> tuple[str, int, str]:
    """Return host and port to listen on, and the host that is advertised."""
    listeners = values.value("listeners") if "listeners" in values.static else LISTENERS_DEFAULT
    host, port = _only("listeners", listeners)
    told = values.value("advertised.listeners")
    advertised, told_port = (host, port) if told is None else _only("advertised.listeners", told)
    if told_port != port:
        raise ConfigError(
            "advertised.listeners",
            f"advertised.listeners: port {told_port} is not the one of listeners, {port}",
        )
    if is_every_address(advertised):
        raise ConfigError(
            "advertised.listeners",
            "the listener binds every address: advertised.listeners must name the one that "
            "brokers shall use",
        )
    return host, port, advertised


def _only(name: str, texts: object) -> tuple[str, int]:
    """Return host and port of the one listener of a controller."""
    if not isinstance(texts, tuple) or len(texts) != 1:
        raise ConfigError(name, f"{name}: a controller has one, {CONTROLLER_LISTENER}://HOST:PORT")
    listener, host, port = parse_endpoint(texts[0], name)
    if listener != CONTROLLER_LISTENER:
        raise ConfigError(name, f"{name}: {listener!r} is not {CONTROLLER_LISTENER}")
    return host, port


def _text(values: BrokerValues, name: str) -> str:
    value = values.value(name)
    if not value:
        raise ConfigError(name, f"{name} must be set")
    return str(value)


def _number(values: BrokerValues, name: str) -> int:
    value = values.value(name)
    if not isinstance(value, int):
        raise ConfigError(name, f"{name} must be set")
    return value
