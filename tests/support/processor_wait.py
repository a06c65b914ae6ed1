"""How long processes have waited for a processor: the share of a busy machine in a measurement."""

from fairlead_cli.local.process_table import identify


def waited_s(*pids: int) -> float:
    """Return the waiting time of these processes' main threads; 0 if the kernel has no value."""
    found = [identify(pid) for pid in pids]
    return sum(process.waited_s for process in found if process is not None)
