"""The files with which a Kafka client connects to a secure cluster as one user.

NAME.properties is for Java's clients and tools, NAME.librdkafka for librdkafka's, NAME.curl for the
HTTP API. All contain the password, so only their owner may read them, and the password is in no
list of processes. `format_clients` shows the settings for other libraries.
"""

from __future__ import annotations

import errno
import os
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_cli.errors import CliError
from fairlead_cli.whole_file import OWNER_ONLY, write_whole
from fairlead_model.security.client_texts import (
    parse_librdkafka,
    render_curl,
    render_java,
    render_librdkafka,
    scram_jaas_config,
)

if TYPE_CHECKING:
    from pathlib import Path

MECHANISM: Final = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """How one user connects to a cluster."""

    bootstrap: str
    user: str
    password: str = field(repr=False)
    ca: Path


def librdkafka_settings(access: ClientAccess) -> dict[str, str]:
    """Return the settings for librdkafka and confluent-kafka."""
    return {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": MECHANISM,
        "sasl.username": access.user,
        "sasl.password": access.password,
        "ssl.ca.location": str(access.ca),
    }


def java_settings(access: ClientAccess) -> dict[str, str]:
    """Return the settings for Java's clients and Kafka's tools."""
    return {
        "bootstrap.servers": access.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": scram_jaas_config(access.user, access.password),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(access.ca),
    }


def curl_settings(access: ClientAccess) -> dict[str, str]:
    """Return curl's settings for the HTTP API; none if HTTP cannot send the user's name."""
    if ":" in access.user:
        return {}
    return {"user": f"{access.user}:{access.password}", "cacert": str(access.ca)}


class ClientPaths(NamedTuple):
    """The files of one user."""

    java: Path
    librdkafka: Path
    curl: Path

    @classmethod
    def of(cls, directory: Path, user: str) -> ClientPaths:
        """Return the paths of a user's files."""
        return cls(*(directory / f"{user}.{each}" for each in ("properties", "librdkafka", "curl")))


def ensure_directory(directory: Path) -> None:
    """Create the folder for these files, which only its owner may read; CliError."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise CliError(
            f"{directory} cannot hold what clients log in with: {error.strerror}",
            hint="Name another folder by --data DIR.",
        ) from error


def write_client_files(directory: Path, access: ClientAccess) -> ClientPaths:
    """Write the files of a user; return their paths. CliError or OSError."""
    ensure_directory(directory)
    paths = ClientPaths.of(directory, access.user)
    write_whole(paths.java, render_java(java_settings(access)), mode=OWNER_ONLY)
    settings = render_librdkafka(librdkafka_settings(access))
    write_whole(paths.librdkafka, settings, mode=OWNER_ONLY)
    if for_curl := curl_settings(access):
        write_whole(paths.curl, render_curl(for_curl), mode=OWNER_ONLY)
    return paths


def remove_client_files(directory: Path, user: str) -> bool:
    """Remove the files of a user; tell whether there were any. OSError if one cannot be removed."""
    was_there = False
    failures: list[OSError] = []
    for path in ClientPaths.of(directory, user):
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failures.append(error)
        was_there = True
    if failures:
        raise failures[0]
    return was_there


def read_client_file(path: Path) -> dict[str, str]:
    """Return the settings of a librdkafka file."""
    return parse_librdkafka(path.read_text(encoding="utf-8"))


def format_clients(
    user: str, bootstrap: str, *, ca: Path, paths: ClientPaths, rest: str | None
) -> str:
    """Return settings to paste into five clients and curl; the password stays in the files."""
    java, librdkafka, curl = paths
    first = bootstrap.split(",", 1)[0]
    settings = f"settings = dict(line.strip().split('=', 1) for line in open({str(librdkafka)!r}))"
    login = f"""sasl_mechanism={MECHANISM!r},
      sasl_plain_username={user!r}, sasl_plain_password=settings["sasl.password"])"""
    return f"""\
Clients log in as {user}; the password is in files that only you may read.

Java and Kafka's tools:
  kafka-topics.sh --bootstrap-server {first} --command-config {shlex.quote(str(java))} --list
kcat, librdkafka:
  kcat -F {shlex.quote(str(librdkafka))} -L
Python:
  {settings}
confluent-kafka:
  Producer(settings)
kafka-python:
  KafkaConsumer(bootstrap_servers={bootstrap!r}, security_protocol="SASL_SSL",
      ssl_cafile={str(ca)!r}, {login}
aiokafka:
  AIOKafkaConsumer(bootstrap_servers={bootstrap!r}, security_protocol="SASL_SSL",
      ssl_context=ssl.create_default_context(cafile={str(ca)!r}),
      {login}
{_curl_lines(curl, rest)}"""


def _curl_lines(curl: Path, rest: str | None) -> str:
    if rest is None or not curl.exists():
        return ""
    return f"curl, for the HTTP API:\n  curl -K {shlex.quote(str(curl))} {rest}/v3/clusters\n"
