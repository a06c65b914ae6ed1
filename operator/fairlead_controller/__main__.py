"""`python -m fairlead_controller`: the controller of a cluster as a process of its own.

Prints one line when it is ready; everything else goes to stderr. Exit codes: 0 stopped on request;
1 the store or a port is not available, or another controller took over; 2 wrong usage or manifests.
"""

import argparse
import asyncio
import logging
import sys
import time
from pathlib import Path

from fairlead_controller.cluster_secret import read_secret_file
from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions.cluster_limits import ClusterLimits
from fairlead_controller.decisions.events import DeclareTopics, ElectLeaders, LimitCluster
from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.decisions.topics.declared_topics import declaration_problems
from fairlead_controller.leader_balancer import LeaderBalancer
from fairlead_controller.local.server import ControllerServer
from fairlead_controller.manifest_files import read_manifests
from fairlead_controller.reassigner import Reassigner
from fairlead_controller.startup_topics import Declarations, add_topic_options
from fairlead_controller.stores.file import open_file_store
from fairlead_model.configs.config_values import BROKER_CONFIGS, BrokerValues, ConfigError
from fairlead_model.configs.controller_configs import (
    CONTROLLER_CONFIGS,
    ControllerConfigs,
    read_controller_configs,
)
from fairlead_model.configs.setting_sources import merge_settings, read_assignments
from fairlead_model.host_address import join_address
from fairlead_model.resources.topic_manifest import ManifestError
from fairlead_model.session.refusals import RefusedError
from fairlead_sockets.stop_signals import on_stop_signal
from fairlead_tls.followed_certificate import FollowedPeer, follow_files, follow_peer
from fairlead_tls.peer_settings import CONTROLLER_LISTENER, read_peer_tls
from fairlead_tls.protocol_map import PROTOCOL_MAP

logger = logging.getLogger("fairlead_controller")


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m fairlead_controller",
        description="Run the controller of a Fairlead cluster: it places partitions, elects "
        "leaders and keeps the cluster's metadata in one folder.",
    )
    parser.add_argument("--data", type=Path, required=True, help="folder for the metadata")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=9191, help="port for brokers' sessions")
    parser.add_argument("--http-port", type=int, default=8170, help="port for health and status")
    parser.add_argument(
        "--cluster-secret-file",
        type=Path,
        required=True,
        help="file with the secret that brokers and controllers share",
    )
    add_topic_options(parser)
    parser.add_argument("--default-partitions", type=int, default=1)
    parser.add_argument("--default-replication-factor", type=int, default=1)
    for name in CONTROLLER_CONFIGS:
        key = BROKER_CONFIGS[name]
        option = f"--{name.replace('.', '-')}"
        parser.add_argument(option, dest=name, default=key.default, help=key.doc)
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting of TLS by its name in a controller's properties, such as "
        f"{PROTOCOL_MAP}=CONTROLLER:SSL",
    )
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """Run until a signal; return the exit code."""
    try:
        secret = read_secret_file(arguments.cluster_secret_file)
        specs = read_manifests(arguments.topics)
        given = {name: vars(arguments)[name] for name in CONTROLLER_CONFIGS}
        configs = read_controller_configs(given)
        certificate = _read_certificate(arguments.set)
    except ManifestError as error:
        return _fail(2, *error.problems)
    except (OSError, ValueError) as error:
        return _fail(2, str(error))
    event = DeclareTopics(specs, arguments.default_partitions, arguments.default_replication_factor)
    try:
        store = await open_file_store(arguments.data)
        try:
            controller = await open_controller(store, now_ms=lambda: time.time_ns() // 1_000_000)
            problems = declaration_problems(controller.committed, event)
            if problems:
                return _fail(2, *problems)
            server = ControllerServer(
                controller,
                Declarations(controller, event, expected_brokers=arguments.expected_brokers),
                secret=secret,
                timing=configs.timing,
                certificate=certificate,
            )
            return await _reign(controller, server, arguments, configs, certificate)
        finally:
            await store.close()
    except StoreError as error:
        return _fail(1, str(error))
    except OSError as error:
        return _fail(1, f"cannot listen: {error}")


async def _reign(
    controller: Controller,
    server: ControllerServer,
    arguments: argparse.Namespace,
    configs: ControllerConfigs,
    certificate: FollowedPeer | None,
) -> int:
    stopping = asyncio.Event()
    on_stop_signal(stopping.set)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(controller.run())]
            limits = ClusterLimits(configs.topics_max, configs.partitions_max)
            await controller.submit(LimitCluster(limits))
            await controller.submit(ElectLeaders())
            await server.start(
                host=arguments.host, session_port=arguments.port, http_port=arguments.http_port
            )
            running.append(tasks.create_task(server.sessions.watch()))
            running.append(tasks.create_task(server.lag.run()))
            running.append(tasks.create_task(server.declarations.run()))
            if certificate is not None:
                running.append(tasks.create_task(follow_files([certificate])))
            running.append(tasks.create_task(Reassigner(controller).run()))
            if configs.balances_leaders:
                running.append(tasks.create_task(_balancer(controller, configs).run()))
            _say_ready(controller, server, arguments.host)
            await stopping.wait()
            logger.info("stopping")
            await server.stop()
            for task in running:
                task.cancel()
    except ExceptionGroup as group:
        reason = _reason_of_end(group)
        if reason is None:
            raise
        raise reason from group
    finally:
        await server.stop()
    return 0


def _reason_of_end(group: ExceptionGroup) -> StoreError | OSError | None:
    """Return why a reign ended, as one error; None for a defect.

    Clauses of `except*` would read better, but what they raise is in a group again where Python is
    as old as Debian's (3.11.2).
    """
    ended, others = group.split((StoreError, RefusedError))
    if ended is not None and others is None:
        # The end of a reign refuses the waiting events; the store's error is the reason.
        return StoreError("; ".join(map(str, ended.exceptions)))
    unheard, defects = group.split(OSError)
    if unheard is not None and defects is None:
        return OSError(str(unheard.exceptions[0]))
    return None


def _read_certificate(assignments: list[str]) -> FollowedPeer | None:
    """Return the certificate of the sessions' port, None without TLS; ValueError if it is wrong."""
    settings = read_assignments(assignments)
    for name in settings:
        if name != PROTOCOL_MAP and not name.startswith(("ssl.", "listener.name.controller.ssl.")):
            raise ConfigError(name, f"--set {name}: only settings of TLS are set like this")
    values = BrokerValues(static=merge_settings(file={}, environment={}, assignments=settings))
    tls = read_peer_tls(values, CONTROLLER_LISTENER, broker_id=None)
    return None if tls is None else follow_peer(CONTROLLER_LISTENER, tls)


def _balancer(controller: Controller, configs: ControllerConfigs) -> LeaderBalancer:
    return LeaderBalancer(
        controller,
        interval_s=configs.balance_interval_s,
        imbalance_percentage_max=configs.imbalance_percentage_max,
    )


def _say_ready(controller: Controller, server: ControllerServer, host: str) -> None:
    print(
        f"ready controller epoch={controller.committed.controller_epoch} "
        f"session={join_address(host, server.session_port)} "
        f"http={join_address(host, server.http_port)}",
        flush=True,
    )


def _fail(code: int, *problems: str) -> int:
    for problem in problems:
        print(f"fairlead-controller: {problem}", file=sys.stderr)
    return code


def main() -> int:
    """Run the controller; return the exit code."""
    arguments = build_parser().parse_args()
    logging.basicConfig(
        level=arguments.log_level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    return asyncio.run(run(arguments))


if __name__ == "__main__":
    sys.exit(main())
