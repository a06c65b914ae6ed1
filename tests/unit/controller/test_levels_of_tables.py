"""Who may reign over tables of which feature levels."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from fairlead_controller.controller import open_controller
from fairlead_controller.decisions.state import CountersChanged
from fairlead_controller.decisions.tables.lines import FEATURES_KEY, features_line
from fairlead_controller.decisions.tables.stored_table import StoreTooNewError
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE, first_lines
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_model.features import (
    FAIRLEAD_VERSION,
    FEATURES,
    FinalizedFeatures,
    features_of_new_cluster,
)
from fairlead_model.release import RELEASE

HIGHEST = FEATURES[FAIRLEAD_VERSION].highest


async def reign(
    directory: Path, lines: Mapping[str, str | None] | None = None
) -> tuple[FinalizedFeatures, Mapping[str, str]]:
    """Take over tables once; give the levels, and the lines of the cluster's table after that."""
    store = await open_file_store(directory)
    try:
        if lines is not None:
            await store.write([TableWrite(CLUSTER_TABLE, None, 0, lines)])
        controller = await open_controller(store, now_ms=lambda: 0)
        table = await store.read(CLUSTER_TABLE)
        assert table is not None
        return controller.committed.image.features, table.lines
    finally:
        await store.close()


def older_lines(**more: str) -> dict[str, str | None]:
    return {**first_lines("c", CountersChanged(1, 0)), **more}


def test_a_new_cluster_has_the_highest_levels_in_its_tables(tmp_path: Path) -> None:
    levels, lines = asyncio.run(reign(tmp_path))
    assert levels == features_of_new_cluster()
    assert lines[FEATURES_KEY] == features_line(levels)


def test_taking_over_an_older_cluster_raises_nothing(tmp_path: Path) -> None:
    levels, lines = asyncio.run(reign(tmp_path, older_lines()))
    assert (levels.epoch, levels.level(FAIRLEAD_VERSION)) == (0, 1)
    assert FEATURES_KEY not in lines


@pytest.mark.parametrize(
    ("levels", "problem"),
    [
        (
            {FAIRLEAD_VERSION: HIGHEST + 1},
            f"fairlead.version is at level {HIGHEST + 1}, supported is 1 to {HIGHEST}",
        ),
        ({"next.version": 1}, "next.version is at level 1, supported is nothing of it"),
    ],
)
def test_a_release_that_does_not_support_a_level_leaves_the_tables_alone(
    tmp_path: Path, levels: Mapping[str, int], problem: str
) -> None:
    newer = features_line(FinalizedFeatures(3, levels, "9.1"))
    with pytest.raises(StoreTooNewError) as told:
        asyncio.run(reign(tmp_path, older_lines(features=newer)))
    assert str(told.value) == (
        f"this release, {RELEASE}, does not support the feature levels of the cluster: {problem}; "
        "run release 9.1, or a later one"
    )

    async def look() -> tuple[int, Mapping[str, str]]:
        store = await open_file_store(tmp_path)
        table = await store.read(CLUSTER_TABLE)
        await store.close()
        assert table is not None
        return table.controller_epoch, table.lines

    # Not sealed: a controller that reads them goes on writing.
    assert asyncio.run(look()) == (0, older_lines(features=newer))


def test_a_feature_of_a_newer_release_that_is_off_stops_nobody(tmp_path: Path) -> None:
    off = features_line(FinalizedFeatures(3, {"next.version": 0}, "9.1"))
    levels, _ = asyncio.run(reign(tmp_path, older_lines(features=off)))
    assert levels.level("next.version") == 0
