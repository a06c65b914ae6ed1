"""The operator's settings from its environment, read once at the start."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fairlead_controller.kubernetes.settings import (
    CONTROLLER_DRILLS,
    DEFAULT_SOCKET,
    WATCH_VARIABLE,
    split_namespaces,
)

DEFAULT_NAME: Final = "fairlead-operator"
DEFAULT_HTTP_PORT: Final = 8081
SESSION_PORT: Final = 9090
DEFAULT_REPLICAS: Final = 2
API_TIMEOUT_S: Final = 10.0
"""More than for elections: nothing here is worth a second attempt while the first is under way."""
API_CONNECT_TIMEOUT_S: Final = 5.0
"""The same for a connection: a busy API server takes seconds for the TLS handshake, and each later
attempt would have to begin with another one."""


class SettingsError(ValueError):
    """The environment lacks something, or says what cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Settings of the kopf process; builders use those that end up in manifests."""

    pod_name: str
    namespace: str
    """Namespace that the operator itself lives in."""
    watch_namespaces: tuple[str, ...] = ()
    """Namespaces that are served, none for all."""
    broker_image: str = ""
    """Image of brokers whose LogCluster names none."""
    spark_image: str = ""
    """Image of StreamJobs that name none; empty: each has to."""
    spark_driver_role: str = ""
    """Role that the operator gives to drivers of StreamJobs, as ClusterRole/NAME or Role/NAME;
    empty: it makes no accounts for them."""
    name: str = DEFAULT_NAME
    """Name of the operator's own StatefulSet and of its headless Service."""
    replicas: int = DEFAULT_REPLICAS
    """Operator pods, each of which may be the active one: brokers try them all."""
    allows_controller_drills: bool = False
    """Whether drills of the operator's own namespace may break the controller."""
    refuses_plaintext: bool = False
    """Whether LogClusters with a listener without TLS are refused."""
    controller_socket: str = DEFAULT_SOCKET
    http_port: int = DEFAULT_HTTP_PORT
    log_level: str = "INFO"

    def session_urls(
        self, namespace: str, cluster: str, *, is_tls: bool = False
    ) -> tuple[str, ...]:
        """Return where a cluster's brokers find the controller, whichever pod it is in."""
        scheme = "wss" if is_tls else "ws"
        return tuple(
            f"{scheme}://{self.name}-{number}.{self.name}.{self.namespace}.svc:{SESSION_PORT}"
            f"/{namespace}/{cluster}"
            for number in range(self.replicas)
        )


def read_settings(environment: Mapping[str, str]) -> OperatorSettings:
    """Read the environment; SettingsError names what is missing or wrong."""
    problems = [
        f"{name} is not set" for name in ("POD_NAME", "POD_NAMESPACE") if not environment.get(name)
    ]
    replicas = _number(environment, "FAIRLEAD_OPERATOR_REPLICAS", DEFAULT_REPLICAS, problems)
    http_port = _number(environment, "FAIRLEAD_OPERATOR_HTTP_PORT", DEFAULT_HTTP_PORT, problems)
    driver_role = _role(environment, "FAIRLEAD_SPARK_DRIVER_ROLE", problems)
    if problems:
        raise SettingsError("; ".join(problems))
    return OperatorSettings(
        pod_name=environment["POD_NAME"],
        namespace=environment["POD_NAMESPACE"],
        watch_namespaces=split_namespaces(environment.get(WATCH_VARIABLE, "")),
        broker_image=environment.get("FAIRLEAD_BROKER_IMAGE", ""),
        spark_image=environment.get("FAIRLEAD_SPARK_IMAGE", ""),
        spark_driver_role=driver_role,
        name=environment.get("FAIRLEAD_OPERATOR_SERVICE") or DEFAULT_NAME,
        replicas=replicas,
        allows_controller_drills=environment.get(CONTROLLER_DRILLS, "").lower() == "true",
        refuses_plaintext=environment.get("FAIRLEAD_REFUSE_PLAINTEXT", "").lower() == "true",
        controller_socket=environment.get("FAIRLEAD_CONTROLLER_SOCKET") or DEFAULT_SOCKET,
        http_port=http_port,
        log_level=environment.get("FAIRLEAD_OPERATOR_LOG_LEVEL", "INFO").upper(),
    )


def _number(environment: Mapping[str, str], name: str, default: int, problems: list[str]) -> int:
    text = environment.get(name) or str(default)
    if not text.isdecimal() or not 1 <= int(text) <= 65_535:
        problems.append(f"{name}: {text!r} is not a number from 1 to 65535")
        return default
    return int(text)


def _role(environment: Mapping[str, str], name: str, problems: list[str]) -> str:
    text = environment.get(name, "")
    kind, _, role = text.partition("/")
    if text and (kind not in ("ClusterRole", "Role") or not role):
        problems.append(f"{name}: {text!r} is not ClusterRole/NAME or Role/NAME")
    return text
