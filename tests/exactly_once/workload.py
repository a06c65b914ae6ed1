"""The records of the input topic, and what each application must write for them.

The records of a key are numbered from 0 and have words. For each record, copying applications write
its number and the CRC of its value; the word count writes the count so far of each word.
"""

import random
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

KEYS: Final = tuple(f"k{number:02}" for number in range(20))
WORDS: Final = tuple(f"w{number:02}" for number in range(12))
WORDS_EACH: Final = 3
DOOMED: Final = b"doomed"
"""Prefix of the values in transactions that an application aborts."""

Values = dict[bytes, list[bytes]]
"""Values by key, in order."""


class Input(NamedTuple):
    """One record of the input topic."""

    key: bytes
    value: bytes


def make_inputs(seed: int) -> Iterator[Input]:
    """Yield records without end; the same ones for the same seed."""
    chance = random.Random(seed)
    numbers: Counter[str] = Counter()
    while True:
        key = chance.choice(KEYS)
        words = " ".join(chance.choices(WORDS, k=WORDS_EACH))
        yield Input(key.encode(), f"{numbers[key]} {words}".encode())
        numbers[key] += 1


def copies_of(inputs: Sequence[Input]) -> Values:
    """Return what copying applications write: by key, in the order of the input."""
    expected: Values = {}
    for key, value in inputs:
        copy = b"%s %08x" % (value.split()[0], zlib.crc32(value))
        expected.setdefault(key, []).append(copy)
    return expected


def counts_of(inputs: Sequence[Input]) -> Values:
    """Return what the word count writes: every count of every word."""
    totals = Counter(word for _, value in inputs for word in value.split()[1:])
    return {word: [b"%d" % count for count in range(1, n + 1)] for word, n in totals.items()}
