"""kubectl and helm as a platform engineer uses them, and waits that name what they waited for.

What a busy API server does not answer is asked again, where a second time changes nothing.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

COMMAND_TIMEOUT_S = 180.0
WAIT_TIMEOUT_S = 120
"""Of `kubectl wait`, which by itself gives up after 30 s."""
PATIENCE_S = 60.0
POLL_S = 0.2
TIMEOUT = re.compile(r"--timeout=(\d+)s")
BUSY = re.compile(
    r"etcdserver: (request timed out|leader changed)|TLS handshake timeout|connection refused"
    r"|connection reset by peer|unexpected EOF|client connection lost|Client.Timeout exceeded"
    r"|unable to return a response in the time allotted|currently unable to handle the request"
    r"|[Tt]oo [Mm]any [Rr]equests|net/http: request canceled|i/o timeout"
)
"""What kubectl and helm say of an API server that did not answer, or will answer otherwise soon."""
REPEATABLE = {
    "kubectl": {
        *("annotate", "apply", "delete", "drain", "get", "label", "logs", "patch", "scale"),
        *("uncordon", "wait"),
    },
    "helm": {"list", "status", "upgrade"},
}
ONCE = {"--type=json"}
"""The steps of a JSON patch may not be taken twice."""


class CommandError(AssertionError):
    """A command failed; the text has all that it printed."""


def run(
    *command: str,
    stdin: str | None = None,
    timeout_s: float = COMMAND_TIMEOUT_S,
    only_reads: bool = False,
) -> str:
    """Return a command's output; CommandError unless it succeeds in time.

    One that `only_reads` can be run again, whatever it is.
    """
    deadline = time.monotonic() + PATIENCE_S
    was_busy = False
    while True:
        try:
            return _run_once(command, stdin, timeout_s)
        except CommandError as error:
            if was_busy and "delete" in command and "(NotFound)" in str(error):
                return ""
            is_late = time.monotonic() > deadline
            may_repeat = only_reads or is_repeatable(command)
            if is_late or not may_repeat or not BUSY.search(str(error)):
                raise
        was_busy = True
        time.sleep(POLL_S)


def is_repeatable(command: Sequence[str]) -> bool:
    """Tell whether a command that may have been carried out can be run again."""
    program, *arguments = command
    if arguments[:1] == ["-n"]:
        arguments = arguments[2:]
    verb = arguments[0] if arguments else ""
    if verb == "annotate" and "--overwrite" not in arguments:
        return False
    return verb in REPEATABLE.get(program, ()) and not ONCE & set(arguments)


def _run_once(command: Sequence[str], stdin: str | None, timeout_s: float) -> str:
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{' '.join(command)}: no end within {timeout_s:.0f} s") from error
    if done.returncode:
        raise CommandError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Kubectl:
    """`kubectl` in one namespace of the current context."""

    namespace: str

    def __call__(
        self,
        *arguments: str,
        stdin: str | None = None,
        timeout_s: float = COMMAND_TIMEOUT_S,
        only_reads: bool = False,
    ) -> str:
        """Run a command; one that waits by itself ends by itself, and says for what it waited."""
        own = TIMEOUT.search(" ".join(arguments))
        if own is None and arguments[0] == "wait":
            arguments += (f"--timeout={WAIT_TIMEOUT_S}s",)
            own = TIMEOUT.search(arguments[-1])
        if own is not None:
            timeout_s = max(timeout_s, int(own[1]) + 30.0)
        command = ("kubectl", "-n", self.namespace, *arguments)
        return run(*command, stdin=stdin, timeout_s=timeout_s, only_reads=only_reads)

    def get(self, *arguments: str) -> dict[str, Any]:
        """One object, or a list, as JSON."""
        loaded: dict[str, Any] = json.loads(self("get", *arguments, "-o", "json"))
        return loaded

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """The items of a list."""
        found: list[dict[str, Any]] = self.get(*arguments)["items"]
        return found

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Server-side, as one file."""
        # A text that begins with a brace would be read as JSON, without separators of documents.
        text = "".join(f"---\n{json.dumps(manifest)}\n" for manifest in manifests)
        self("apply", "--server-side", "-f", "-", stdin=text)

    def exec(
        self,
        pod: str,
        *command: str,
        stdin: str | None = None,
        timeout_s: float = 120,
        only_reads: bool = False,
    ) -> str:
        """Run in a pod."""
        flags = ("-i",) if stdin is not None else ()
        words = ("exec", *flags, pod, "--", *command)
        return self(*words, stdin=stdin, timeout_s=timeout_s, only_reads=only_reads)

    def condition(self, resource: str, name: str, condition: str) -> dict[str, Any]:
        """A condition of an object; empty where it has none of this type."""
        status = self.get(resource, name).get("status") or {}
        for entry in status.get("conditions") or ():
            if entry["type"] == condition:
                return dict(entry)
        return {}


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float) -> float:
    """Poll until a condition is true; return the seconds.

    Commands may fail meanwhile, and a status may not have all its fields yet.
    """
    started = time.monotonic()
    failure = ""
    while True:
        try:
            if condition():
                return time.monotonic() - started
            failure = ""
        except (CommandError, KeyError) as error:
            failure = f": {error!r}" if isinstance(error, KeyError) else f": {error}"
        if time.monotonic() - started > timeout_s:
            raise AssertionError(f"{what}: not within {timeout_s:.0f} s{failure}")
        time.sleep(POLL_S)


def wait_for_account(kubectl: Kubectl) -> None:
    """Wait until pods of a new namespace have their account, without which none is let in."""
    account = ("get", "serviceaccount", "default", "-o", "name")
    wait_until(lambda: bool(kubectl(*account)), "the namespace has no account", PATIENCE_S)


@contextmanager
def fresh_namespace(name: str) -> Iterator[Kubectl]:
    """Create a namespace that takes pods, and delete it at the end without waiting."""
    run("kubectl", "create", "namespace", name)
    kubectl = Kubectl(name)
    try:
        wait_for_account(kubectl)
        yield kubectl
    finally:
        run("kubectl", "delete", "namespace", name, "--wait=false")
