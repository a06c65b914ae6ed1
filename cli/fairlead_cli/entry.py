"""Console scripts. Until a command runs, and after it has ended, Ctrl-C just ends the process.

To import a command takes some tenths of a second, in which Python would answer Ctrl-C with a
traceback. So this module imports only what the interpreter has loaded anyway.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module


def run_script(module: str) -> None:
    """Run the `run()` of a module as this process, and exit with its exit code."""
    # A shell lets a command that it starts with `&` ignore Ctrl-C.
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
