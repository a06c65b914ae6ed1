"""Settings of a candidate, from its environment and its command line."""

import argparse
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEFAULT_SOCKET: Final = "/run/fairlead/controller.sock"
CONTROLLER_DRILLS: Final = "FAIRLEAD_CONTROLLER_DRILLS"
WATCH_VARIABLE: Final = "FAIRLEAD_WATCH_NAMESPACE"
DEFAULT_LEASE: Final = "fairlead-operator"
LEASE_VARIABLE: Final = "FAIRLEAD_LEASE"
LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")


class SettingsError(ValueError):
    """A setting is missing; the text names it."""


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """Settings of one process."""

    identity: str
    """Unique to this process: the pod's name and a random suffix."""
    namespace: str
    """The operator's own namespace, which also has its Lease."""
    watch_namespaces: tuple[str, ...]
    """Namespaces whose LogClusters are served, empty for all."""
    lease: str
    host: str
    """Address to listen on, empty for all."""
    session_port: int
    http_port: int
    socket: Path
    log_level: str
    allows_drills: bool = False
    """Whether drills may break this process; its supervisor checks the same setting."""


def lease_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of the Lease: two installations in one namespace need two names."""
    return environment.get(LEASE_VARIABLE) or DEFAULT_LEASE


def split_namespaces(text: str) -> tuple[str, ...]:
    """Return the namespaces that are served, in order; empty means all."""
    return tuple(sorted({name.strip() for name in text.split(",")} - {""}))


def build_parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the command line's parser; defaults come from the environment."""
    parser = argparse.ArgumentParser(
        prog="python -m fairlead_controller.kubernetes",
        description="Run a controller of Fairlead clusters on Kubernetes: it waits until it holds "
        "the Lease, then elects leaders for every LogCluster until it loses it.",
    )
    parser.add_argument("--pod-name", default=environment.get("POD_NAME", ""))
    parser.add_argument(
        "--namespace", default=environment.get("POD_NAMESPACE", ""), help="where the Lease is"
    )
    parser.add_argument(
        "--watch-namespace",
        default=environment.get(WATCH_VARIABLE, ""),
        help="namespaces of the LogClusters, with commas between them; all by default",
    )
    parser.add_argument("--lease", default=lease_name(environment), help="name of the Lease")
    parser.add_argument("--host", default="", help="address to listen on; all by default")
    parser.add_argument("--session-port", type=int, default=9090, help="port for brokers")
    parser.add_argument("--http-port", type=int, default=8080, help="port for health and metrics")
    parser.add_argument(
        "--socket",
        type=Path,
        default=Path(environment.get("FAIRLEAD_CONTROLLER_SOCKET") or DEFAULT_SOCKET),
        help="unix socket for the operator's other process",
    )
    level = environment.get("FAIRLEAD_OPERATOR_LOG_LEVEL", "INFO").upper()
    parser.add_argument("--log-level", default=level if level in LOG_LEVELS else "INFO")
    return parser


def read_settings(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ
) -> CandidateSettings:
    """Read settings; SettingsError names a missing one. Exits for wrong flags."""
    chosen = build_parser(environment).parse_args(arguments)
    missing = [
        name
        for name, value in (("POD_NAME", chosen.pod_name), ("POD_NAMESPACE", chosen.namespace))
        if not value
    ]
    if missing:
        raise SettingsError(f"{' and '.join(missing)} have to be set")
    return CandidateSettings(
        identity=f"{chosen.pod_name}_{secrets.token_hex(4)}",
        namespace=chosen.namespace,
        watch_namespaces=split_namespaces(chosen.watch_namespace),
        lease=chosen.lease,
        host=chosen.host,
        session_port=chosen.session_port,
        http_port=chosen.http_port,
        socket=chosen.socket,
        log_level=chosen.log_level,
        allows_drills=environment.get(CONTROLLER_DRILLS, "").lower() == "true",
    )
