"""Touches the machine's free memory once, before anything is measured.

A virtual machine's host backs a page when it is first written, and charges that to whoever does:
several microseconds a page, more than a broker spends on the records in it. Page cache of a
machine that has been up for a while never pays this, so neither peer shall.
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
    """Write to each page of most of the memory that nothing has used yet; a child gives it back."""
    size = min(int(_free_bytes() * SHARE), GIBIBYTES_MAX << 30)
    if size > 1 << 30:
        subprocess.run([sys.executable, "-c", _TOUCH, str(size)], check=True)


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemFree":
            return int(value.split()[0]) * 1024
    return 0
