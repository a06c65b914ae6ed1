"""Console scripts. Until a command runs, and once it has ended, Ctrl-C just ends the process.

Importing a command takes some tenths of a second, in which Python would answer Ctrl-C with a
traceback of its imports. So nothing is imported here but what the interpreter has loaded anyway.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module


def run_script(module: str) -> None:
    """Run the `run()` of a module as this process; its exit code is ours."""
    # A shell may have told us to ignore Ctrl-C, as it tells what it starts with `&`.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    run = import_module(module).run
    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    exit_code = run()
    if is_ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(exit_code)


def main() -> None:
    """`fairlead`."""
    run_script("fairlead_cli.main")


def kubectl() -> None:
    """`kubectl-fairlead`."""
    run_script("fairlead_cli.kubectl.main")


if __name__ == "__main__":
    main()
