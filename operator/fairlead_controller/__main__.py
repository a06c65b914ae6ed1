"""`python -m fairlead_controller`: the controller of a cluster as a process of its own.

Prints one line when it is ready; everything else goes to stderr. Exit codes: 0 stopped on request,
1 the store or a port is not to be had or another controller took over, 2 wrong usage or manifests.
"""

import argparse
import asyncio
import json
import logging
import signal
import sys
import time
from pathlib import Path

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.declarations import Declarations
from fairlead_controller.declared_topics import declaration_problems
from fairlead_controller.events import DeclareTopics, ElectLeaders
from fairlead_controller.leader_balancer import LeaderBalancer
from fairlead_controller.server import ControllerServer
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.stores.metadata_store import StoreError
from fairlead_model.refusals import RefusedError
from fairlead_model.resources import (
    ManifestError,
    TopicSpec,
    is_topic_manifest,
    parse_topic_manifests,
)
from fairlead_model.session_protocol import parse_secret

logger = logging.getLogger("fairlead_controller")


def build_parser() -> argparse.ArgumentParser:
    """Give the command line."""
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
    parser.add_argument(
        "--topics",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="Topic manifests (YAML or JSON): the complete set of declared topics",
    )
    parser.add_argument(
        "--expected-brokers",
        type=int,
        help="place new declared topics once so many brokers are there",
    )
    parser.add_argument("--default-partitions", type=int, default=1)
    parser.add_argument("--default-replication-factor", type=int, default=1)
    parser.add_argument(
        "--auto-leader-rebalance-enable",
        choices=("true", "false"),
        default="true",
        help="give leadership back to preferred leaders from time to time",
    )
    parser.add_argument("--leader-imbalance-check-interval-seconds", type=int, default=300)
    parser.add_argument(
        "--leader-imbalance-per-broker-percentage",
        type=int,
        default=10,
        help="share of the partitions that prefer a broker which others may lead for now",
    )
    parser.add_argument(
        "--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR")
    )
    return parser


def read_manifests(paths: list[Path]) -> tuple[TopicSpec, ...]:
    """Read the Topics of manifest files; ManifestError or OSError. Other kinds are passed over."""
    manifests: list[object] = []
    for path in paths:
        content = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            loaded = json.loads(content)
            documents = loaded if isinstance(loaded, list) else [loaded]
        else:
            import yaml

            try:
                documents = list(yaml.safe_load_all(content))
            except yaml.YAMLError as error:
                raise ManifestError([f"{path}: {error}"]) from error
        manifests.extend(document for document in documents if is_topic_manifest(document))
    return tuple(parse_topic_manifests(manifests))


async def run(arguments: argparse.Namespace) -> int:
    """Run until a signal; give the exit code."""
    try:
        secret = parse_secret(arguments.cluster_secret_file.read_bytes())
        specs = read_manifests(arguments.topics)
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
            return await _reign(controller, event, secret, arguments)
        finally:
            await store.close()
    except StoreError as error:
        return _fail(1, str(error))
    except OSError as error:
        return _fail(1, f"cannot listen on {arguments.host}: {error}")


async def _reign(
    controller: Controller,
    event: DeclareTopics,
    secret: bytes,
    arguments: argparse.Namespace,
) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    declarations = Declarations(controller, event, expected_brokers=arguments.expected_brokers)
    server = ControllerServer(controller, declarations, secret=secret)
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(controller.run())]
            await controller.submit(ElectLeaders())
            await server.start(
                host=arguments.host, session_port=arguments.port, http_port=arguments.http_port
            )
            running.append(tasks.create_task(server.sessions.watch()))
            running.append(tasks.create_task(server.lag.run()))
            running.append(tasks.create_task(declarations.run()))
            if arguments.auto_leader_rebalance_enable == "true":
                running.append(tasks.create_task(_balancer(controller, arguments).run()))
            _say_ready(controller, server, arguments.host)
            await stopping.wait()
            logger.info("stopping")
            await server.stop()
            for task in running:
                task.cancel()
    except* (StoreError, RefusedError) as group:
        # A reign that ends refuses what still waits; the reason is the store's.
        raise StoreError("; ".join(str(error) for error in group.exceptions)) from group
    except* OSError as group:
        raise OSError(str(group.exceptions[0])) from group
    finally:
        await server.stop()
    return 0


def _balancer(controller: Controller, arguments: argparse.Namespace) -> LeaderBalancer:
    return LeaderBalancer(
        controller,
        interval_s=max(arguments.leader_imbalance_check_interval_seconds, 1),
        imbalance_percentage_max=max(arguments.leader_imbalance_per_broker_percentage, 0),
    )


def _say_ready(controller: Controller, server: ControllerServer, host: str) -> None:
    print(
        f"ready controller epoch={controller.committed.controller_epoch} "
        f"session={host}:{server.session_port} http={host}:{server.http_port}",
        flush=True,
    )


def _fail(code: int, *problems: str) -> int:
    for problem in problems:
        print(f"fairlead-controller: {problem}", file=sys.stderr)
    return code


def main() -> int:
    """Run the controller; give the exit code."""
    arguments = build_parser().parse_args()
    logging.basicConfig(
        level=arguments.log_level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    return asyncio.run(run(arguments))


if __name__ == "__main__":
    sys.exit(main())
