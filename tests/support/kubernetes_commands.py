"""kubectl and helm as a platform engineer uses them, and waits that name what they waited for."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

COMMAND_TIMEOUT_S = 120.0
POLL_S = 0.2


class CommandError(AssertionError):
    """A command failed; the text has all that it printed."""


def run(*command: str, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Return a command's output; CommandError unless it succeeds in time."""
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

    def __call__(self, *arguments: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
        return run("kubectl", "-n", self.namespace, *arguments, stdin=stdin, timeout_s=timeout_s)

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

    def exec(self, pod: str, *command: str, stdin: str | None = None, timeout_s: float = 60) -> str:
        """Run in a pod."""
        flags = ("-i",) if stdin is not None else ()
        return self("exec", *flags, pod, "--", *command, stdin=stdin, timeout_s=timeout_s)

    def condition(self, resource: str, name: str, condition: str) -> dict[str, Any]:
        """A condition of an object; empty where it has none of this type."""
        status = self.get(resource, name).get("status") or {}
        for entry in status.get("conditions") or ():
            if entry["type"] == condition:
                return dict(entry)
        return {}


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float) -> float:
    """Poll until a condition is true; return the seconds. Commands may fail meanwhile."""
    started = time.monotonic()
    failure = ""
    while True:
        try:
            if condition():
                return time.monotonic() - started
            failure = ""
        except CommandError as error:
            failure = f": {error}"
        if time.monotonic() - started > timeout_s:
            raise AssertionError(f"{what}: not within {timeout_s:.0f} s{failure}")
        time.sleep(POLL_S)


@contextmanager
def fresh_namespace(name: str) -> Iterator[Kubectl]:
    """Create a namespace, and delete it at the end without waiting."""
    run("kubectl", "create", "namespace", name)
    try:
        yield Kubectl(name)
    finally:
        run("kubectl", "delete", "namespace", name, "--wait=false")
