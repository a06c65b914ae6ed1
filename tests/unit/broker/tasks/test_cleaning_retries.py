"""When a log whose compaction failed is tried again."""

from dataclasses import replace

from fairlead_broker.tasks.cleaning_retries import LONGEST_MS, CleaningRetries
from fairlead_model.configs.log_config import LogConfig

CONFIG = LogConfig()


def test_the_wait_doubles_up_to_an_hour() -> None:
    retries: CleaningRetries[str] = CleaningRetries()
    now_ms, waits = 1_000, []
    assert retries.may_try("t", CONFIG, now_ms)
    for _ in range(9):
        waits.append(retries.note_failure("t", CONFIG, now_ms))
        assert not retries.may_try("t", CONFIG, now_ms + waits[-1] - 1)
        now_ms += waits[-1]
        assert retries.may_try("t", CONFIG, now_ms)
    assert waits[:4] == [30_000, 60_000, 120_000, 240_000]
    assert waits[-2:] == [LONGEST_MS, LONGEST_MS]
    assert retries.may_try("other", CONFIG, 0)


def test_other_settings_are_another_chance() -> None:
    retries: CleaningRetries[str] = CleaningRetries()
    for _ in range(5):
        retries.note_failure("t", CONFIG, 0)
    changed = replace(CONFIG, max_message_bytes=5)
    assert retries.may_try("t", changed, 1)
    assert retries.note_failure("t", changed, 1) == 30_000
    assert not retries.may_try("t", changed, 2)


def test_what_is_damaged_is_counted_until_it_is_sound_or_gone() -> None:
    retries: CleaningRetries[str] = CleaningRetries()
    retries.note_failure("a", CONFIG, 0, is_uncleanable=True)
    retries.note_failure("b", CONFIG, 0, is_uncleanable=True)
    retries.note_failure("c", CONFIG, 0)
    assert retries.uncleanable == 2
    assert retries.note_success("a")
    assert not retries.note_success("a")
    assert retries.uncleanable == 1
    retries.keep_only({"c"})
    assert retries.uncleanable == 0
    assert not retries.may_try("c", CONFIG, 1)
