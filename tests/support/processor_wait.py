"""How long processes have waited for a processor: what a busy machine adds to a measured time."""

from fairlead_cli.local.process_table import identify


def waited_s(*pids: int) -> float:
    """The main threads of these together, since they began; 0 where the kernel does not tell."""
    found = [identify(pid) for pid in pids]
    return sum(process.waited_s for process in found if process is not None)
