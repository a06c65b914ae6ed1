"""Touches the machine's free memory once, before any measurement.

The host of a virtual machine allocates a page when it is first written, and the writing process
waits for that: several microseconds for each page, more than a broker spends on the records in it.
On a machine that has been up for a while, page cache never has this cost, so no peer should have it
here.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

SHARE: Final = 0.7
GIBIBYTES_MAX: Final = 14
_TOUCH: Final = """
import mmap, sys
size = int(sys.argv[1])
memory = mmap.mmap(-1, size)
for position in range(0, size, 4096):
    memory[position] = 1
"""


def touch_memory() -> None:
    """Write to each page of most of the unused memory; a child process does it and frees it."""
    size = min(int(_free_bytes() * SHARE), GIBIBYTES_MAX << 30)
    if size > 1 << 30:
        subprocess.run([sys.executable, "-c", _TOUCH, str(size)], check=True)


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemFree":
            return int(value.split()[0]) * 1024
    return 0
