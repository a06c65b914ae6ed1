"""Values of the command line, which are checked before any measurement."""

import argparse
import re
from collections.abc import Callable, Collection
from typing import Final

PEERS: Final = ("fairlead", "kafka")
_LAYOUT: Final = re.compile(r"0*[1-9][0-9]*(:one)?")


def names_among(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a parser of comma-separated names that refuses unknown ones."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"'{unknown[0]}' is none of {', '.join(known)} (comma-separated)"
            )
        return names

    return read


def at_least_one(text: str) -> int:
    """Read a number of repetitions; with 0 there would be no measurement."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number from 1 on")
    return number


def layouts(text: str) -> list[str]:
    """Read numbers of partitions, each with or without `:one`."""
    found = text.split(",")
    for each in found:
        if not _LAYOUT.fullmatch(each):
            raise argparse.ArgumentTypeError(f"'{each}' is no number of partitions, or NUMBER:one")
    return found
