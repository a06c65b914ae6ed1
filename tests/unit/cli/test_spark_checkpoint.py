"""`fairlead spark run --fresh` deletes checkpoints, and nothing else."""

from pathlib import Path

import pytest

from fairlead_cli.errors import CliError
from fairlead_cli.spark.run import forget_checkpoint


def test_a_checkpoint_is_forgotten(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint"
    for query in ("delays", "totals"):
        (place / query / "offsets").mkdir(parents=True)
        (place / query / "metadata").touch()
    forget_checkpoint(place)
    assert not place.exists()
    forget_checkpoint(place)


@pytest.mark.parametrize("with_query", [False, True])
def test_a_folder_of_files_is_no_checkpoint(tmp_path: Path, with_query: bool) -> None:
    """It was deleted with all that was in it."""
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("three years of work")
    if with_query:
        (tmp_path / "delays").mkdir()
        (tmp_path / "delays" / "metadata").touch()
    with pytest.raises(CliError, match="holds something else than checkpoints: it stays"):
        forget_checkpoint(tmp_path)
    assert thesis.read_text() == "three years of work"
