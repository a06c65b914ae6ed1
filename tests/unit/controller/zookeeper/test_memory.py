"""What a candidate remembers outside of ZooKeeper."""

from pathlib import Path

import pytest

from fairlead_controller.zookeeper.memory import (
    FILE,
    CandidateMemory,
    MemoryFileError,
    Remembered,
)


def test_the_highest_epoch_is_kept_over_a_restart(tmp_path: Path) -> None:
    memory = CandidateMemory(tmp_path / "new")
    assert memory.remembered == Remembered()
    memory.remember("A", 5)
    memory.remember("A", 3)
    memory.close()
    again = CandidateMemory(tmp_path / "new")
    assert again.remembered == Remembered("A", 5)
    again.close()


def test_one_folder_has_one_process(tmp_path: Path) -> None:
    memory = CandidateMemory(tmp_path)
    with pytest.raises(MemoryFileError, match="another controller runs in"):
        CandidateMemory(tmp_path)
    memory.close()
    CandidateMemory(tmp_path).close()


@pytest.mark.parametrize("text", ["", "{}", '{"cluster_id":"A","controller_epoch":"x"}'])
def test_a_damaged_file_is_named_and_not_taken_for_a_new_one(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(MemoryFileError, match=FILE):
        CandidateMemory(tmp_path)


def test_a_crash_while_writing_leaves_what_was_there(tmp_path: Path) -> None:
    memory = CandidateMemory(tmp_path)
    memory.remember("A", 5)
    memory.close()
    (tmp_path / FILE).with_suffix(".partial").write_text('{"clus')
    again = CandidateMemory(tmp_path)
    assert again.remembered == Remembered("A", 5)
    again.close()
