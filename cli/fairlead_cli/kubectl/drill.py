"""`kubectl fairlead drill`: create a FailoverDrill, follow it, and end with its verdict."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from fairlead_cli.errors import CliError, ExitCode, InputError
from fairlead_cli.kubectl.access import Access, access_options
from fairlead_cli.kubectl.snapshot import condition
from fairlead_cli.options import table_or_json
from fairlead_cli.output import tell
from fairlead_model.resources.failover_drill import CutFrom, FaultType, TargetType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fairlead_kube.client import KubeClient

EPILOG = """\b
Examples:
  kubectl fairlead drill --cluster demo --target Leader --fault Kill
  kubectl fairlead drill --cluster demo --target Leader --topic orders --fault Pause --runs 3
  kubectl fairlead drill -f drill.yaml --limit-ms 500

The records go to a topic of the drill's own. Ctrl-C stops following; the drill goes on, and is
stopped by `kubectl delete failoverdrill NAME`. Exits with 1 unless the drill has passed. Of a drill
with a schedule it tells when it is due, and exits with 0.
"""
TARGET_FLAGS = {
    "topic": "topic",
    "partition": "partition",
    "broker_id": "brokerId",
    "node": "node",
    "zone": "zone",
}
FINAL = ("Finished", "Refused")
POLL_S = 1.0


@click.command("drill", epilog=EPILOG)
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A FailoverDrill manifest, instead of the options below.",
)
@click.option("--cluster", help="LogCluster to test.")
@click.option("--target", type=click.Choice(get_args(TargetType)))
@click.option("--topic", help="Break the leader or follower of this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Partition of that topic; default 0.")
@click.option(
    "--broker-id", type=click.IntRange(min=0), help="Id of the broker, for --target Broker."
)
@click.option("--fault", type=click.Choice(get_args(FaultType)))
@click.option("--node", help="Name of the node, for --target Node.")
@click.option("--zone", help="Name of the zone, for --target Zone.")
@click.option(
    "--cut",
    type=click.Choice(get_args(CutFrom)),
    help="Peers that Isolate cuts off; default All.",
)
@click.option(
    "--allow-unsafe",
    is_flag=True,
    help="Break several brokers, even if partitions lose their leader or last replica.",
)
@click.option(
    "--duration-s",
    type=click.IntRange(min=1),
    help="How long Pause, Slow, Isolate, DiskFull last; default 10.",
)
@click.option("--runs", type=click.IntRange(min=1), show_default="1")
@click.option("--limit-ms", type=click.IntRange(min=1), help="Longest recovery that passes.")
@click.option("--report", "reported", metavar="NAME", help="Print the report of a drill.")
@click.option("--name", help="Name of the FailoverDrill; default: a new name.")
@click.option("--wait/--no-wait", default=True, help="Follow the drill to its end (default).")
@click.option("--timeout-s", type=click.IntRange(min=1), default=1800, show_default=True)
@access_options
@table_or_json
def drill(
    *, file: Path | None, wait: bool, timeout_s: int, access: Access, output: str, **flags: Any
) -> int:
    """Cause a fault under a verified workload, and measure its effect."""
    from fairlead_cli.output import note, print_json

    reported = flags.pop("reported")
    if reported is not None:
        return print_game_day(reported, access, output)
    manifest = build_from_file(file, flags) if file else build_from_flags(flags)
    check_manifest(manifest)

    async def work(client: KubeClient, namespace: str) -> dict[str, Any]:
        from fairlead_kube.kinds import FAILOVER_DRILL

        home = access.namespace or manifest["metadata"].get("namespace") or namespace
        manifest["metadata"]["namespace"] = home
        made = await client.create(FAILOVER_DRILL, home, manifest)
        note(f"failoverdrill {home}/{made['metadata']['name']} is made")
        if not wait:
            return made
        try:
            async with asyncio.timeout(timeout_s):
                return await follow(client, made, note)
        except TimeoutError:
            raise CliError(
                f"the drill has not ended after {timeout_s} s",
                hint=f"It goes on:  kubectl describe failoverdrill {made['metadata']['name']}",
            ) from None

    ended = access.run(work)
    is_due_later = not is_over(ended)
    if output == "json":
        print_json(build_document(ended))
    elif wait and not is_due_later:
        print_outcome(ended)
    if not wait or is_due_later:
        return ExitCode.OK
    return ExitCode.OK if condition(ended, "Passed").get("status") == "True" else ExitCode.FAILED


def print_game_day(name: str, access: Access, output: str) -> int:
    """Print the game day's document of an existing drill, in Markdown, or its data."""
    from fairlead_cli.drill.game_day import of_resource, render
    from fairlead_cli.output import print_json

    async def read(client: KubeClient, namespace: str) -> dict[str, Any]:
        from fairlead_kube.kinds import FAILOVER_DRILL

        return await client.get(FAILOVER_DRILL, access.namespace or namespace, name)

    found = access.run(read)
    if output == "json":
        print_json(build_document(found))
    else:
        tell(render(of_resource(found)), nl=False)
    return ExitCode.OK


def build_document(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a drill as the JSON output has it."""
    return {
        "name": manifest["metadata"]["name"],
        "spec": manifest["spec"],
        "status": manifest.get("status") or {},
    }


def build_from_file(file: Path, flags: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest in the file; options can replace only name, cluster and limit."""
    from fairlead_cli.drill.manifest import read_drill_document

    for flag in (*TARGET_FLAGS, "target", "fault", "duration_s", "cut", "allow_unsafe", "runs"):
        if flags[flag] not in (None, False):
            option = flag.replace("_", "-")
            raise click.UsageError(f"--{option} cannot be used with -f: set it in the file")
    manifest = read_drill_document(file)
    if not isinstance(manifest.get("metadata"), dict) or not isinstance(manifest.get("spec"), dict):
        raise InputError(f"{file} has no metadata or no spec")
    if flags["name"]:
        manifest["metadata"]["name"] = flags["name"]
    if flags["cluster"]:
        manifest["spec"]["clusterName"] = flags["cluster"]
    limits = manifest["spec"].get("limits") or {}
    # A value that is no mapping is reported with all other errors.
    if flags["limit_ms"] and isinstance(limits, dict):
        manifest["spec"]["limits"] = limits | {"recoveryMs": flags["limit_ms"]}
    return manifest


def build_from_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest for the options."""
    for flag in ("cluster", "target", "fault"):
        if not flags[flag]:
            raise click.UsageError("say --cluster, --target and --fault, or -f FILE")
    target = {"type": flags["target"]} | {TARGET_FLAGS[name]: flags[name] for name in TARGET_FLAGS}
    fault = {
        "type": flags["fault"],
        "durationSeconds": flags["duration_s"],
        "cut": flags["cut"],
    }
    spec: dict[str, Any] = {
        "clusterName": flags["cluster"],
        "target": {key: value for key, value in target.items() if value is not None},
        "fault": {key: value for key, value in fault.items() if value is not None},
        "runs": flags["runs"] or 1,
    }
    if flags["allow_unsafe"]:
        spec["allowUnsafe"] = True
    if flags["limit_ms"]:
        spec["limits"] = {"recoveryMs": flags["limit_ms"]}
    words = f"{flags['fault']}-{flags['target']}".lower()
    name = flags["name"] or f"{words}-{secrets.token_hex(3)}"
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "FailoverDrill",
        "metadata": {"name": name},
        "spec": spec,
    }


def check_manifest(manifest: dict[str, Any]) -> None:
    """Raise InputError with all errors, before anything is created."""
    from fairlead_model.resources.failover_drill import FailoverDrillSpec
    from fairlead_model.resources.topic_manifest import ManifestError

    try:
        FailoverDrillSpec.from_manifest(manifest)
    except ManifestError as error:
        problems = "\n".join(f"  {problem}" for problem in error.problems)
        raise InputError(f"this is no drill that can be run:\n{problems}") from error


async def follow(
    client: KubeClient, made: dict[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """Print what is new until the drill is over, or waits for the next time of its schedule."""
    teller = Teller(say)
    async for seen in watch_drill(client, made):
        teller.tell(seen)
        if is_over(seen):
            return seen
        if until := schedule_wait(seen):
            name = seen["metadata"]["name"]
            say(f"the schedule is kept: {until}; see  kubectl get failoverdrill {name} -o wide")
            return seen
    raise CliError("the drill was deleted while it was going on")


def is_over(seen: dict[str, Any]) -> bool:
    """Tell whether a drill, or the last one of its schedule, has its verdict."""
    return (seen.get("status") or {}).get("phase") in FINAL


def schedule_wait(seen: dict[str, Any]) -> str:
    """Return what a drill with a schedule waits for; empty if it has none, or does not wait."""
    status = seen.get("status") or {}
    if seen["spec"].get("schedule") is None:
        return ""
    if status.get("nextRunAt"):
        return f"the next drill is due at {status['nextRunAt']}"
    complete = condition(seen, "Complete")
    return str(complete.get("message")) if complete.get("reason") == "Suspended" else ""


async def watch_drill(client: KubeClient, made: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Yield every state of one drill; end when it is deleted."""
    from fairlead_kube.errors import ApiError, ApiUnavailableError
    from fairlead_kube.kinds import FAILOVER_DRILL

    metadata = made["metadata"]
    while True:
        try:
            current = await client.get(FAILOVER_DRILL, metadata["namespace"], metadata["name"])
            yield current
            version = current["metadata"]["resourceVersion"]
            events = client.watch(FAILOVER_DRILL, metadata["namespace"], resource_version=version)
            async with aclosing(events):
                async for event in events:
                    if event.object["metadata"].get("name") != metadata["name"]:
                        continue
                    if event.type == "DELETED":
                        return
                    yield event.object
        except ApiUnavailableError:
            await asyncio.sleep(POLL_S)
        except ApiError as error:
            if error.is_not_found:
                return
            if not (error.is_gone or error.is_passing):
                raise
            await asyncio.sleep(POLL_S)


class Teller:
    """Prints each fact once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._phase = ""
        self._runs = 0

    def tell(self, seen: dict[str, Any]) -> None:
        """Print what has changed since the last time."""
        status = seen.get("status") or {}
        complete = condition(seen, "Complete")
        line = f"{status.get('phase', 'Pending')}: {complete.get('message', 'not seen yet')}"
        if line != self._phase:
            self._phase = line
            self._say(line)
        runs = status.get("runs") or []
        if len(runs) > self._runs:
            self._runs = len(runs)
            self._say(f"run {self._runs}: {runs[-1].get('target', '')}")
            for entry in status.get("timeline") or ():
                self._say(f"  {entry['offsetMs']:>7,} ms  {entry['event']}")


def print_outcome(ended: dict[str, Any]) -> None:
    """Print figures and verdict for people."""
    from fairlead_cli.output import print_table

    status = ended.get("status") or {}
    rows = [
        tuple(
            "-" if run.get(name) is None else f"{run[name]}"
            for name in (
                "target",
                "detectionMs",
                "electionMs",
                "recoveryP50Ms",
                "recoveryMaxMs",
                "longestGapMs",
            )
        )
        for run in status.get("runs") or ()
    ]
    columns = ("target", "detected", "elected", "recovered p50", "recovered max", "longest gap")
    if rows:
        print_table(columns, rows, title="milliseconds after the fault", right=columns[1:])
    if status.get("acknowledged") is not None:
        tell(
            f"{status['acknowledged']:,} records acknowledged: {status.get('lost')} lost, "
            f"{status.get('duplicates')} duplicated, {status.get('reordered')} reordered, "
            f"{status.get('clientErrors')} client errors."
        )
    passed = condition(ended, "Passed")
    is_passed = passed.get("status") == "True"
    word = click.style("Passed", fg="green", bold=True)
    if not is_passed:
        refused = status.get("phase") == "Refused"
        word = click.style("REFUSED" if refused else "FAILED", fg="red", bold=True)
    tell(f"{word}: {passed.get('message', '')}")
