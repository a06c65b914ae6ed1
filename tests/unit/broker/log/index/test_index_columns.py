"""The active index in memory: what the file has, and no later than a loop can wait for."""

import random
import struct
import time
from pathlib import Path

import pytest

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.index.index_file import OFFSET_ENTRY, TIME_ENTRY, read_columns


@pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 500])
def test_columns_are_those_of_the_file(tmp_path: Path, entry: struct.Struct, count: int) -> None:
    chance = random.Random(count)
    largest = 2**63 - 1 if entry is TIME_ENTRY else 2**32 - 1
    rows = [(chance.randint(0, largest), chance.randint(0, 2**32 - 1)) for _ in range(count)]
    rows[:2] = [(largest, 2**32 - 1), (0, 0)][:count]
    path = tmp_path / "index"
    path.write_bytes(b"".join(entry.pack(*row) for row in rows) + b"rest")
    for wanted in (count, count + 1, count // 2):
        keys, values = read_columns(RealDisk(), str(path), entry, wanted)
        assert list(zip(keys, values, strict=True)) == rows[:wanted]
        if count:
            keys.append(largest)
            values.append(2**32 - 1)


@pytest.mark.parametrize("entry", [OFFSET_ENTRY, TIME_ENTRY])
def test_a_full_index_is_read_as_a_whole(tmp_path: Path, entry: struct.Struct) -> None:
    """After a start each log reads its index: entry by entry that took seconds for some hundred."""
    count = 262_144
    content = b"".join(entry.pack(at, at) for at in range(count))
    path = tmp_path / "index"
    path.write_bytes(content)
    began = time.process_time()
    for key, value in entry.iter_unpack(content):
        assert key == value
    one_by_one = time.process_time() - began
    began = time.process_time()
    keys, _ = read_columns(RealDisk(), str(path), entry, count)
    assert time.process_time() - began < one_by_one / 2
    assert keys[-1] == count - 1
