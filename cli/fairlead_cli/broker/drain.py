"""`fairlead broker drain` and `undrain`: move all replicas of a broker to others, for good."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.errors import CliError, InputError, NoAnswerError
from fairlead_cli.name_completion import complete_brokers
from fairlead_cli.options import FiniteRange, bootstrap_option, data_option, table_or_json

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S: Final = 3600.0
POLL_S: Final = 0.5
ALTER_VERSION: Final = 1

DRAIN_EPILOG = """\b
Examples:
  fairlead broker drain 3                    return at once; replicas go on moving
  fairlead broker drain 3 --wait             return when broker 3 has no replicas any more
  fairlead broker drain 3 -o json | jq .replicas

The broker's leaders move first, then its replicas, few at a time; it deletes replicas that have
moved. It gets no new replicas until `fairlead broker undrain 3`, even after a restart. The command
exits with 1 if the other brokers cannot take its replicas, and says why; then nothing has begun.
"""
UNDRAIN_EPILOG = """\b
Examples:
  fairlead broker undrain 3

Moves that have not ended are cancelled; replicas that have moved stay where they are.
"""


@click.command("drain", epilog=DRAIN_EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)
@click.option("--wait", "is_waiting", is_flag=True, help="Return when the broker is empty.")
@click.option(
    "--timeout-s",
    type=FiniteRange(min=0.1),
    default=TIMEOUT_S,
    show_default=True,
    help="How long --wait waits.",
)
@data_option
@bootstrap_option
@table_or_json
def drain(
    *,
    broker_id: int,
    is_waiting: bool,
    timeout_s: float,
    data: Path,
    bootstrap: str | None,
    output: str,
) -> None:
    """Move all leaders and replicas to other brokers, and place no new ones here."""
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import note_if_interrupted

    addresses = resolve_bootstrap(bootstrap, data)
    order_drain(addresses, broker_id, value="true")
    replicas = count_replicas(addresses, broker_id)
    if is_waiting:
        with note_if_interrupted(f"The drain goes on. Look:  fairlead status{cluster_arguments()}"):
            replicas = wait_until_empty(addresses, broker_id, replicas, timeout_s)
    show(output, broker_id, replicas, is_drained=True)


def wait_until_empty(addresses: str, broker_id: int, replicas: int, timeout_s: float) -> int:
    """Wait until the broker has no replicas; return 0. CliError when the time is up."""
    deadline = time.monotonic() + timeout_s
    while held := replicas or count_stored(addresses, broker_id):
        if time.monotonic() > deadline:
            raise CliError(
                f"broker {broker_id} still holds {held} replicas after {timeout_s:g} s",
                hint=f"It goes on. Look:  fairlead status{cluster_arguments()}",
            )
        time.sleep(POLL_S)
        try:
            replicas = count_replicas(addresses, broker_id)
        except NoAnswerError:
            continue  # The broker died during the request; the next request goes to another one.
    return replicas


@click.command("undrain", epilog=UNDRAIN_EPILOG)
@click.argument(
    "broker_id", metavar="ID", type=click.IntRange(min=0), shell_complete=complete_brokers
)
@data_option
@bootstrap_option
@table_or_json
def undrain(*, broker_id: int, data: Path, bootstrap: str | None, output: str) -> None:
    """Let a drained broker lead and hold partitions again."""
    from fairlead_cli.client.target import resolve_bootstrap

    addresses = resolve_bootstrap(bootstrap, data)
    order_drain(addresses, broker_id, value=None)
    show(output, broker_id, count_replicas(addresses, broker_id), is_drained=False)


def order_drain(addresses: str, broker_id: int, *, value: str | None) -> None:
    """Set or unset the order to drain."""
    from fairlead_model.configs.broker_configs import BROKER_DRAIN

    order(addresses, broker_id, BROKER_DRAIN, value)


def order(addresses: str, broker_id: int, config: str, value: str | None) -> None:
    """Set or unset an order; any broker accepts it, because the affected broker may be down.

    InputError if no broker has this id, CliError if the order is refused.
    """
    from fairlead_cli.client.wire_call import call_any
    from fairlead_cli.wire_exchange import name_error
    from fairlead_model.session.calls import AlterOperation, ResourceType
    from fairlead_wire.errors import ErrorCode
    from fairlead_wire.messages.incremental_alter_configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    operation = AlterOperation.DELETE if value is None else AlterOperation.SET
    alteration = AlterableConfig(name=config, config_operation=operation, value=value)
    resource = AlterConfigsResource(
        resource_type=ResourceType.BROKER, resource_name=str(broker_id), configs=[alteration]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    reply = call_any(addresses, request, ALTER_VERSION)
    (answer,) = reply.responses
    if answer.error_code == ErrorCode.INVALID_REQUEST:
        hint = f"Look:  fairlead status{cluster_arguments()}"
        raise InputError(answer.error_message or name_error(answer.error_code), hint=hint)
    if answer.error_code:
        raise CliError(answer.error_message or name_error(answer.error_code))


def count_replicas(addresses: str, broker_id: int) -> int:
    """Count the replicas of a broker, including those that are leaving it."""
    from fairlead_cli.client.connection import build_admin, fetch_metadata

    topics: Any = fetch_metadata(build_admin(addresses)).topics
    return sum(
        broker_id in partition.replicas
        for topic in topics.values()
        for partition in topic.partitions.values()
    )


def count_stored(addresses: str, broker_id: int) -> int:
    """Count the replicas on a broker's disks; 0, with a note, if the broker cannot be asked."""
    from fairlead_cli.broker.log_dir_requests import describe, find_broker
    from fairlead_cli.output import note

    try:
        directories = describe(find_broker(addresses, broker_id)).results
    except NoAnswerError:
        return 1  # The broker is stopping or starting: the cluster will soon show which.
    except CliError as error:
        note(f"{error.message}: what is left on its disks is not known.")
        return 0
    return sum(len(topic.partitions) for each in directories for topic in each.topics)


def show(output: str, broker_id: int, replicas: int, *, is_drained: bool) -> None:
    """Print the progress."""
    from fairlead_cli.output import format_count, print_json

    if output == "json":
        print_json({"id": broker_id, "drained": is_drained, "replicas": replicas})
    elif not is_drained:
        click.echo(f"Broker {broker_id} may hold partitions again; it has {replicas} replicas.")
    elif replicas:
        click.echo(
            f"Broker {broker_id} is being drained: {format_count(replicas, 'replica')} to go."
        )
    else:
        click.echo(f"Broker {broker_id} is drained: it holds nothing, and gets nothing new.")
