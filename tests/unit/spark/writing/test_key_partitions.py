"""The partitions of a column of keys are those of each key by itself."""

import random

import pyarrow as pa
import pytest

from fairlead_spark.writing.key_partitions import partitions_for_keys
from fairlead_wire.murmur2 import partition_for_key


@pytest.mark.parametrize("size", [0, 1, 3, 4, 8, 11, 40])
def test_keys_of_one_size(size: int) -> None:
    rng = random.Random(size)
    keys = [rng.randbytes(size) for _ in range(50)]
    assert partitions_for_keys(pa.array(keys, pa.binary()), 7).tolist() == [
        partition_for_key(key, 7) for key in keys
    ]


def test_keys_of_many_sizes_in_a_slice_with_nulls() -> None:
    rng = random.Random(1)
    keys = [rng.randbytes(rng.choice((0, 1, 5, 6, 7, 30, 2000))) for _ in range(300)]
    column = pa.array([b"before", *keys, None, b"behind"], pa.binary()).slice(1, len(keys) + 1)
    found = partitions_for_keys(column, 12).tolist()
    assert found[:-1] == [partition_for_key(key, 12) for key in keys]


def test_one_key_that_is_longer_than_all_others() -> None:
    keys = [b"k" * 9] * 20 + [b"long" * 5000]
    assert partitions_for_keys(pa.array(keys), 5).tolist() == [
        partition_for_key(key, 5) for key in keys
    ]


@pytest.mark.parametrize("keys", [[], [b""], [None]])
def test_columns_without_a_byte(keys: list[bytes | None]) -> None:
    found = partitions_for_keys(pa.array(keys, pa.binary()), 5)
    assert len(found) == len(keys)
