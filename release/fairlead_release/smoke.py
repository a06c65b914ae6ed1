"""`python -m fairlead_release.smoke DIST`: tries a release where there is nothing but its folder.

It is installed into a fresh environment in an empty directory, without a package index; there a
cluster is started, a record goes in and comes out, and the packaged charts are rendered.
"""

import contextlib
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fairlead_release.archives import read_archive
from fairlead_release.chart_packages import render_chart
from fairlead_release.commands import CommandError, run
from fairlead_release.installation import bare_environment, install_release

RECORD: Final = "from a release"
TOPIC: Final = "greetings"
SHIFTS: Final = (*range(3), *range(99, 103))
"""Ports of a local cluster of three brokers, from that of the first: brokers, controller, peers."""
PORTS: Final = range(12_000, 30_000, 250)


def try_release(dist: Path) -> None:
    """Try everything; CommandError or AssertionError says what does not work."""
    with tempfile.TemporaryDirectory(prefix="fairlead-smoke-") as scratch:
        folder = Path(scratch)
        with step("checksums"):
            run(("sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"), folder=dist)
        with step("installation"):
            python = install_release(dist, folder)
        with step("cluster"):
            _try_cluster(python.parent, folder)
        with step("charts"):
            _try_charts(dist, python, folder)
        with step("kustomize base"):
            _try_base(dist)


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Say how long a step took."""
    started = time.monotonic()
    yield
    print(f"{name}: works ({time.monotonic() - started:.1f} s)", flush=True)


def _try_cluster(programs: Path, folder: Path) -> None:
    """Start a cluster in an empty directory, produce and consume a record."""
    empty = folder / "empty"
    empty.mkdir()
    environment = {**bare_environment(folder), "PATH": f"{programs}:/usr/bin:/bin"}

    def fairlead(*arguments: str, text: str | None = None) -> str:
        return run(("fairlead", *arguments), folder=empty, environment=environment, text=text)

    place = run(
        (programs / "python", "-c", "import fairlead_operator; print(fairlead_operator.__file__)"),
        folder=empty,
        environment=environment,
    )
    if not place.startswith(str(folder)):
        raise CommandError(f"the operator is imported from {place.strip()}")
    port = _free_ports()
    bootstrap = f"127.0.0.1:{port}"
    fairlead("up", "--detach", "--port", str(port), "--http-port", str(port + 200))
    try:
        fairlead("topic", "create", TOPIC, "--bootstrap", bootstrap)
        fairlead("produce", TOPIC, "--bootstrap", bootstrap, text=RECORD + "\n")
        read = fairlead("consume", TOPIC, "--count", "1", "--bootstrap", bootstrap)
    finally:
        fairlead("down")
    if RECORD not in read:
        raise CommandError(f"the record {RECORD!r} came out as {read!r}")


def _try_charts(dist: Path, python: Path, folder: Path) -> None:
    """Render the packaged charts; the wheel has the same files."""
    for package in sorted((dist / "charts").glob("*.tgz")):
        run(("helm", "lint", "--strict", "--quiet", package))
        rendered = render_chart(package)
        if not rendered:
            raise CommandError(f"{package.name} renders nothing")
        name = package.name.rpartition("-")[0]
        installed = python.parent.parent / "share" / "fairlead" / "charts" / name
        for path, content in read_archive(package).items():
            # helm writes Chart.yaml in an order of its own.
            is_own = not path.endswith("Chart.yaml")
            if is_own and (installed.parent / path).read_bytes() != content:
                raise CommandError(f"{path} of {package.name} is another one in the wheel")


def _try_base(dist: Path) -> None:
    """Let kubectl build the kustomize base; no object is lost on the way."""
    base = dist / "kustomize"
    built = run(("kubectl", "kustomize", base))
    files = [path for path in base.rglob("*.yaml") if path.name != "kustomization.yaml"]
    stated = "".join(path.read_text(encoding="utf-8") for path in files)
    lost = stated.count("\nkind: ") - built.count("\nkind: ")
    if lost:
        raise CommandError(f"kubectl kustomize loses {lost} objects of the base")


def _free_ports() -> int:
    """Return a port from which on those of a local cluster are free."""
    for base in PORTS:
        with contextlib.ExitStack() as stack:
            try:
                for shift in (*SHIFTS, *(200 + each for each in (*range(3), 90))):
                    server = stack.enter_context(socket.socket())
                    server.bind(("127.0.0.1", base + shift))
            except OSError:
                continue
            return base
    raise CommandError("no range of ports is free for a cluster")


def main(arguments: list[str]) -> int:
    """Run `smoke.py DIST`."""
    try:
        try_release(Path(arguments[0]).resolve())
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
