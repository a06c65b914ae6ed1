"""A rate holds over any time, whatever the sizes are, and nothing is saved up."""

import random

import pytest

from fairlead_broker.replication.token_bucket import BURST_MS, TokenBucket


@pytest.mark.parametrize("rate", [1, 1000, 1 << 20, 100 << 20])
@pytest.mark.parametrize("seed", range(5))
def test_what_goes_is_the_rate_and_one_slice(rate: int, seed: int) -> None:
    rng = random.Random(seed)
    bucket = TokenBucket(rate)
    now_ms, sent, largest = 1000, 0, 0
    while now_ms < 61_000:
        delay_ms = bucket.delay_ms(now_ms)
        if delay_ms:
            now_ms += delay_ms
            continue
        size = rng.randrange(1, max(rate // 20, 2))
        bucket.take(size)
        sent, largest = sent + size, max(largest, size)
    most = rate * (60_000 + BURST_MS) / 1000 + largest
    assert most * 0.95 - largest < sent <= most


def test_nothing_is_saved_up() -> None:
    bucket = TokenBucket(1000)
    assert bucket.delay_ms(0) == 0
    assert bucket.delay_ms(3_600_000) == 0
    bucket.take(100)
    assert bucket.delay_ms(3_600_000) > 0
