"""`kubectl fairlead whatif`: the effects of losing a node, a zone, a pool or brokers.

The metadata objects in the API have everything that the controller uses, so no broker is asked. A
broker's registration has its node and its zone; other resources say which groups read which topics
(`readers`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError, ExitCode, InputError
from fairlead_cli.kubectl.access import Access, access_options
from fairlead_cli.options import table_or_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairlead_cli.kubectl.readers import Reader
    from fairlead_controller.decisions.state import ControllerState
    from fairlead_kube.client import KubeClient

FORMS = "node/NAME, zone/NAME, pool/NAME or broker/ID[,ID…]"

EPILOG = """\b
Examples:
  kubectl fairlead whatif node/worker-2
  kubectl fairlead whatif zone/eu-1a --cluster events
  kubectl fairlead whatif pool/small -o json | jq .withoutLeader
  kubectl fairlead whatif node/worker-2 && kubectl drain worker-2 --ignore-daemonsets

The command changes nothing. It exits with 0 if these brokers can be removed now: every partition
keeps a leader, its min.insync.replicas and a replica elsewhere, if it has these now. Otherwise 1.
"""


@click.command("whatif", epilog=EPILOG)
@click.argument("target", metavar="node/X|zone/X|pool/X|broker/ID[,ID]")
@click.option("--cluster", help="LogCluster; not needed if the namespace has only one.")
@access_options
@table_or_json
def whatif(*, target: str, cluster: str | None, access: Access, output: str) -> int:
    """Show the effect of losing brokers, and whether it is safe now."""
    from fairlead_cli.kubectl.readers import build_rows, read_readers
    from fairlead_cli.output import note, print_json
    from fairlead_cli.whatif.report import build_document, print_document
    from fairlead_cli.whatif.target import split_target
    from fairlead_controller.decisions.what_if import forecast_loss

    split_target(target, FORMS)

    async def read(
        client: KubeClient, namespace: str
    ) -> tuple[ControllerState, list[Any], list[Reader], list[str]]:
        name, state, pools = await read_cluster(client, namespace, cluster)
        return state, pools, *await read_readers(client, namespace, name)

    state, pools, readers, untold = access.run(read)
    forecast = forecast_loss(state, find_brokers(state, pools, target))
    document = build_document(forecast) | {
        "readers": build_rows(readers, forecast, state.image),
        "notListed": untold,
    }
    if output == "json":
        print_json(document)
    else:
        print_document(document)
    for what in untold:
        note(f"Groups may be missing: you may not list {what} here.")
    return ExitCode.OK if forecast.is_safe else ExitCode.FAILED


async def read_cluster(
    client: KubeClient, namespace: str, name: str | None
) -> tuple[str, ControllerState, list[Any]]:
    """Return a cluster's name, the controller's state of it, and its pools."""
    from fairlead_kube.kinds import BROKER_POOL, CLUSTER_STATE, PARTITION_TABLE

    states = (await client.list(CLUSTER_STATE, namespace)).items
    names = sorted(str(each["spec"]["clusterName"]) for each in states)
    if name is None:
        if len(names) != 1:
            there = f"there are clusters {', '.join(names)}" if names else "there is no cluster"
            raise CliError(
                f"{there} in namespace {namespace}",
                hint="Add --cluster NAME."
                if names
                else "See them all:  kubectl get logclusters -A",
            )
        (name,) = names
    elif name not in names:
        raise CliError(
            f"cluster {name} has no metadata in namespace {namespace}",
            hint=f"There are: {', '.join(names)}." if names else None,
        )
    tables = (await client.list(PARTITION_TABLE, namespace)).items
    pools = (await client.list(BROKER_POOL, namespace)).items
    mine = [each for each in pools if each["spec"].get("clusterName") == name]
    return name, load_cluster([*states, *tables], name), mine


def load_cluster(objects: Iterable[Mapping[str, Any]], cluster: str) -> ControllerState:
    """Return the state in objects of the API; CliError if they are not consistent.

    Rules and users are in Secrets. They are not needed here, and this user may mostly not read
    them.
    """
    from fairlead_controller.decisions.state import BrokerConfirmed
    from fairlead_controller.decisions.tables.lines import TABLE_PREFIX
    from fairlead_controller.decisions.tables.loading import load_state
    from fairlead_controller.decisions.tables.security_lines import is_security_table
    from fairlead_controller.decisions.tables.stored_table import StoreError
    from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
    from fairlead_controller.stores.kubernetes_tables import read_table

    try:
        tables = {}
        for each in objects:
            if each["spec"]["clusterName"] == cluster:
                table, known = read_table(each, cluster)
                tables[table] = known.stored()
        whole = tables[CLUSTER_TABLE]
        kept = {
            key: line
            for key, line in whole.lines.items()
            if not (
                key.startswith(TABLE_PREFIX) and is_security_table(key.removeprefix(TABLE_PREFIX))
            )
        }
        tables[CLUSTER_TABLE] = replace(whole, lines=kept)
        loaded = load_state(tables, controller_epoch=whole.controller_epoch).state
    except StoreError as error:
        raise CliError(
            f"the metadata of {cluster} do not fit together: {error}",
            hint="They may have changed while they were read. Try again.",
        ) from error
    return loaded.apply(BrokerConfirmed(each) for each in loaded.image.brokers)


def find_brokers(state: ControllerState, pools: Iterable[Any], target: str) -> list[int]:
    """Return the brokers of a target; InputError if there are none of that name."""
    from fairlead_cli.whatif.target import parse_ids, require_known, split_target
    from fairlead_controller.decisions.reassignment.scale_down import find_leaving

    kind, name = split_target(target, FORMS)
    brokers = state.image.brokers
    if kind == "broker":
        ids = parse_ids(name)
        require_known(ids, brokers, state)
        return ids
    if kind == "pool":
        places = {str(each["metadata"]["name"]): {*pool_ids(each["spec"])} for each in pools}
        for broker_id, pool in find_leaving(state).items():
            # The pool no longer has this broker, but the broker still has its replicas.
            places.setdefault(pool, set()).add(broker_id)
        if name not in places:
            raise unknown(kind, name, places)
        return sorted(places[name] & brokers.keys())
    if kind not in {"node", "zone"}:
        raise InputError(f"'{kind}' is no kind of target", hint=f"Write {FORMS}.")
    homes = {
        broker_id: broker.host_name if kind == "node" else broker.rack or ""
        for broker_id, broker in brokers.items()
    }
    found = sorted(each for each, home in homes.items() if home == name)
    if not found:
        raise unknown(kind, name, set(homes.values()) - {""})
    return found


def pool_ids(spec: Mapping[str, Any]) -> range:
    """Return the ids of a pool's brokers."""
    first = int(spec.get("idBase") or 0)
    return range(first, first + int(spec.get("replicas") or 0))


def unknown(kind: str, name: str, there: Iterable[str]) -> InputError:
    """Return the error that names what exists."""
    names = ", ".join(sorted(there))
    return InputError(
        f"no broker is on {kind} '{name}'", hint=f"There are: {names}." if names else None
    )
