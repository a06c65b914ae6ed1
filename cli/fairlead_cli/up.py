"""`fairlead up`: run a controller and brokers as local processes, with a cluster's manifests."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from fairlead_cli.advice import data_arguments
from fairlead_cli.errors import InputError
from fairlead_cli.local.cluster_file import read_cluster_file
from fairlead_cli.local.layout import BROKERS_MAX, HOST, Layout, Ports
from fairlead_cli.local.log_directories import choose_log_directories
from fairlead_cli.local.lost_metadata import refuse_lost_metadata
from fairlead_cli.local.plan import (
    BROKERS_DEFAULT,
    HTTP_PORT_DEFAULT,
    KAFKA_PORT_DEFAULT,
    OWN_SETTINGS,
    LaunchPlan,
)
from fairlead_cli.local.secure_files import choose_secure
from fairlead_cli.local.store import choose_store
from fairlead_cli.name_completion import complete_broker_settings
from fairlead_cli.options import data_option, parse_assignments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_cli.local.live_log import TerminalReporter

EPILOG = """\b
Examples:
  fairlead up
  fairlead up -f examples/topics.yaml
  fairlead up --brokers 1 --port 19092 --http-port 18080 --data /tmp/one
  fairlead up --set log.retention.hours=24 --set auto.create.topics.enable=true
  fairlead up --set log.dirs=/disk1,/disk2
  fairlead up --store zookeeper://127.0.0.1:2181/fairlead
  fairlead up --secure
  fairlead up --host ::1
  fairlead up --detach && fairlead status && fairlead down

Broker i listens at port P+i (and P+100+i for other brokers), the controller at P+99; HTTP is at
H+i and H+90. With --secure clients connect over TLS, at P+50+i. The next `up` with the same
directory uses the data and the ports of the last one.
"""


def read_host(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Check the address of `--host` (an option's callback)."""
    if value is None:
        return None
    host = value.removeprefix("[").removesuffix("]")
    try:
        address = ip_address(host)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no address, such as ::1") from error
    if address.is_unspecified:
        raise click.BadParameter("name one address: it is told to clients, too")
    return str(address)


@click.command(epilog=EPILOG)
@click.option(
    "-f",
    "--file",
    "manifests",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Topic manifests (YAML) to apply; may be repeated.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, BROKERS_MAX),
    help=f"Number of brokers.  [default: {BROKERS_DEFAULT}, or as many as the data has]",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Kafka port of broker 0.  [default: {KAFKA_PORT_DEFAULT}, or that of the last start]",
)
@click.option(
    "--http-port",
    type=click.IntRange(1, 65535),
    help=f"HTTP port of broker 0.  [default: {HTTP_PORT_DEFAULT}, or that of the last start]",
)
@click.option(
    "--host",
    callback=read_host,
    metavar="ADDRESS",
    help="Address of this machine that all ports are at, such as ::1; whoever reaches it reaches "
    f"the cluster.  [default: {HOST}, or that of the last start]",
)
@data_option
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_broker_settings,
    help="A broker setting by Kafka's name (`fairlead config list`); may be repeated.",
)
@click.option(
    "--store",
    metavar="ADDRESS",
    help="Keep the metadata in ZooKeeper, at zookeeper://HOST:PORT[,HOST:PORT…]/CHROOT, instead "
    "of in files; later starts use it, too.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="TLS and logins for clients, which may do nothing without an ACL. DIR/clients has the "
    "settings of the super user. A secure cluster stays secure at later starts.",
)
@click.option(
    "--fault-proxy",
    is_flag=True,
    help="Put a proxy in front of every listener, for `fairlead drill --fault isolate`.",
)
@click.option(
    "--every-partition",
    is_flag=True,
    help="Live log: print a line for each partition that changes, instead of one for many.",
)
@click.option(
    "--detach", is_flag=True, help="Return when the cluster is ready; `fairlead down` stops it."
)
def up(
    *,
    manifests: tuple[Path, ...],
    brokers: int | None,
    port: int | None,
    http_port: int | None,
    host: str | None,
    data: Path,
    assignments: tuple[str, ...],
    store: str | None,
    secure: bool,
    fault_proxy: bool,
    every_partition: bool,
    detach: bool,
) -> None:
    """Start a local cluster and show its live log.

    A controller and three brokers run as processes of this machine, at addresses that any Kafka
    client can use. Ctrl-C stops them; the data stays.
    """
    from fairlead_cli.local.manifests import check_manifests
    from fairlead_cli.local.preflight import unusable_told

    if every_partition and detach:
        raise click.UsageError("--every-partition is about the live log, which --detach has not")
    settings = parse_assignments(assignments, "--set")
    with unusable_told(Layout(data)):
        log_directories = choose_log_directories(Layout(data.resolve()), settings)
        address = choose_store(Layout(data), store)
        refuse_lost_metadata(Layout(data), address, log_directories)
        count = choose_broker_count(Layout(data), brokers)
        is_secure = choose_secure(Layout(data), asked=secure)
        ports = choose_ports(Layout(data), port, http_port, host, is_secure=is_secure)
    plan = LaunchPlan(
        data=data.resolve(),
        brokers=count,
        ports=ports,
        settings=check_settings(settings),
        log_directories=log_directories,
        manifests=tuple(path.resolve() for path in manifests),
        fault_proxy=fault_proxy,
        store=address,
        said=tuple(find_words(click.get_current_context())),
    )
    check_manifests(manifests)
    option = data_arguments(data)
    if detach:
        from fairlead_cli.client.stop_signals import ends_as_interrupts
        from fairlead_cli.local.detached import start_detached

        # A caller that is told of a failure, such as `timeout`, must not find it running later.
        with ends_as_interrupts():
            start_detached(plan, data_option=option, say=click.echo)
    else:
        from fairlead_cli.local.live_log import TerminalReporter

        run_in_foreground(plan, TerminalReporter(option, every_partition=every_partition))


def find_words(context: click.Context) -> Iterator[str]:
    """Return the arguments of the command line besides the ports."""
    for parameter in context.command.params:
        name, value = str(parameter.name), context.params.get(str(parameter.name))
        is_said = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not is_said or name in ("port", "http_port"):
            continue
        option = max(parameter.opts, key=len)
        if isinstance(value, bool):
            yield option
            continue
        values = value if isinstance(value, tuple) else (value,)
        for each in values:
            yield from (option, str(each))


def run_in_foreground(plan: LaunchPlan, reporter: TerminalReporter) -> None:
    """Supervise in this process until Ctrl-C."""
    import asyncio

    from fairlead_cli.local.cluster_supervisor import ClusterSupervisor

    async def supervise() -> None:
        await ClusterSupervisor(plan, reporter).run()

    asyncio.run(supervise())
    click.echo(
        f"Stopped. The data is in {plan.data}; serve it again:\n  {plan.command(plan.ports)}"
    )


def choose_broker_count(layout: Layout, asked: int | None) -> int:
    """Return the requested number; else that of brokers with data, so that none is left out.

    InputError if a folder looks like that of a broker whose number no cluster has.
    """
    known = layout.known_brokers()
    if asked is None:
        if known and known[-1] >= BROKERS_MAX:
            raise InputError(
                f"{layout.broker_directory(known[-1])} would be that of one of {known[-1] + 1} "
                f"brokers: at most {BROKERS_MAX} run on one machine",
                hint="If it is a copy, rename it, or move it elsewhere. Otherwise say --brokers N.",
            )
        return known[-1] + 1 if known else BROKERS_DEFAULT
    if known and asked <= known[-1]:
        click.echo(
            f"Note: {layout.root} holds data of {known[-1] + 1} brokers; partitions of brokers "
            f"{asked} to {known[-1]} have no leader until they are started again.",
            err=True,
        )
    return asked


def choose_ports(
    layout: Layout, port: int | None, http_port: int | None, host: str | None, *, is_secure: bool
) -> Ports:
    """Return the requested ports; else those of the last run, so that its clients find them."""
    last = read_cluster_file(layout.cluster_file)
    return Ports(
        port or (last.port if last else KAFKA_PORT_DEFAULT),
        http_port or (last.http_port if last else HTTP_PORT_DEFAULT),
        is_secure,
        host or (last.controller.host if last else HOST),
    )


def check_settings(settings: dict[str, str]) -> dict[str, str]:
    """Refuse settings that every broker would refuse, before a broker is started."""
    from fairlead_model.configs.config_values import ConfigError, validate_broker_config

    for name, value in settings.items():
        if name in OWN_SETTINGS:
            raise InputError(
                f"--set {name}: `fairlead up` sets this one itself",
                hint="Use --brokers, --port, --http-port, --data and --store.",
            )
        try:
            validate_broker_config(name, value)
        except ConfigError as error:
            raise InputError(
                f"--set: {error.message}", hint="See what there is:  fairlead config list"
            ) from error
    return settings
