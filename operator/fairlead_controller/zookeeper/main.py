"""`fairlead controller`, and `python -m fairlead_controller.zookeeper`: settings and exit codes.

Prints one line when it listens; everything else goes to stderr. Exit codes: 0 stopped on request, 1
it cannot start, 2 wrong settings or manifests, 3 it may no longer act: start it again.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fairlead_controller.cluster_secret import read_secret_file
from fairlead_controller.decisions.events import DeclareTopics
from fairlead_controller.manifest_files import read_manifests
from fairlead_controller.startup_topics import add_topic_options
from fairlead_controller.zookeeper.properties import (
    ControllerProperties,
    read_controller_properties,
)
from fairlead_controller.zookeeper.settings import CandidateSettings
from fairlead_model.configs.property_files import decode_properties
from fairlead_model.configs.setting_sources import (
    merge_settings,
    read_assignments,
    read_environment,
)
from fairlead_model.resources.topic_manifest import ManifestError
from fairlead_tls.followed_certificate import follow_peer
from fairlead_tls.peer_settings import CONTROLLER_LISTENER
from fairlead_zookeeper.address import ZooKeeperAccess

EXIT_FAILED: Final = 1
EXIT_BAD_SETTINGS: Final = 2


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m fairlead_controller.zookeeper",
        description="Run a controller that keeps the metadata of its cluster in ZooKeeper.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings as NAME=VALUE lines")
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="one setting; stronger than the environment (FAIRLEAD_LOG_LEVEL …) and the file",
    )
    add_topic_options(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a candidate until it is stopped; return the exit code."""
    options = build_parser().parse_args(arguments)
    try:
        properties = _read_properties(options)
        settings = _open_settings(properties, options)
    except ManifestError as error:
        return _fail(*error.problems)
    except (OSError, ValueError) as error:
        return _fail(str(error))
    logging.basicConfig(
        level=properties.log_level,
        stream=sys.stderr,
        format=f"%(asctime)s controller {settings.node_id} %(levelname)s %(name)s: %(message)s",
    )
    from fairlead_controller.zookeeper.process import run_candidate

    return asyncio.run(run_candidate(settings))


def _read_properties(options: argparse.Namespace) -> ControllerProperties:
    file = {}
    if options.config is not None:
        file = decode_properties(options.config.read_bytes(), str(options.config))
    environment, warnings = read_environment(os.environ)
    for warning in warnings:
        print(f"fairlead controller: {warning}", file=sys.stderr)
    return read_controller_properties(
        merge_settings(
            file=file, environment=environment, assignments=read_assignments(options.set)
        )
    )


def _open_settings(
    properties: ControllerProperties, options: argparse.Namespace
) -> CandidateSettings:
    """Read the files that the settings name; OSError or ValueError if that fails."""
    tls = properties.tls
    return CandidateSettings(
        access=_open_access(properties),
        node_id=properties.node_id,
        host=properties.host,
        advertised_host=properties.advertised_host,
        session_port=properties.session_port,
        http_host=properties.http_host,
        http_port=properties.http_port,
        secret=read_secret_file(Path(properties.secret_file)),
        certificate=None if tls is None else follow_peer(CONTROLLER_LISTENER, tls),
        data=Path(properties.log_directory),
        configs=properties.configs,
        declared=DeclareTopics(
            read_manifests(options.topics),
            properties.default_partitions,
            properties.default_replication_factor,
        ),
        expected_brokers=options.expected_brokers,
    )


def _open_access(properties: ControllerProperties) -> ZooKeeperAccess:
    zookeeper = properties.zookeeper
    if zookeeper.digest_file is None:
        return zookeeper.access
    with Path(zookeeper.digest_file).open("rb") as file:
        return zookeeper.with_digest(file.read(), os.fstat(file.fileno()).st_mode)


def _fail(*problems: str) -> int:
    for problem in problems:
        print(f"fairlead controller: {problem}", file=sys.stderr)
    return EXIT_BAD_SETTINGS
