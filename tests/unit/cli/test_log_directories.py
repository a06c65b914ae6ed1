"""Log directories of a local cluster: chosen once, and not forgotten by the next start."""

import shutil
from pathlib import Path

import pytest

from fairlead_cli.errors import InputError
from fairlead_cli.local.layout import Layout, Ports
from fairlead_cli.local.log_directories import choose_log_directories, find_log_directories
from fairlead_cli.local.plan import LaunchPlan, decode_plan, encode_plan, encode_properties
from fairlead_cli.log import find_log_directories as dumped_directories


def started(tmp_path: Path, *folders: str) -> Layout:
    """A data directory as a start with these folders leaves it."""
    layout = Layout(tmp_path / "data")
    settings = {"log.dirs": ",".join(str(tmp_path / each) for each in folders)} if folders else {}
    chosen = choose_log_directories(layout, settings)
    assert settings == {}
    plan = LaunchPlan(layout.root, 2, Ports(9092, 8080), {}, (), log_directories=chosen)
    assert decode_plan(encode_plan(plan)) == plan
    layout.config_directory.mkdir(parents=True, exist_ok=True)
    layout.cluster_file.write_text("{}")
    for broker_id in range(2):
        layout.broker_directory(broker_id).mkdir(exist_ok=True)
        text = encode_properties(plan.broker_settings(broker_id))
        layout.broker_config(broker_id).write_text(text)
        for folder in find_log_directories(layout, broker_id):
            (folder / "t-0").mkdir(parents=True, exist_ok=True)
    return layout


def test_a_folder_with_a_backslash_is_found_again(tmp_path: Path) -> None:
    layout = started(tmp_path, "one\\new")
    assert find_log_directories(layout, 0) == (tmp_path / "one\\new/broker-0",)


def test_each_broker_has_a_folder_in_each_directory(tmp_path: Path) -> None:
    layout = started(tmp_path, "one", "two")
    assert find_log_directories(layout, 1) == (tmp_path / "one/broker-1", tmp_path / "two/broker-1")
    assert dumped_directories(layout.root) == [
        tmp_path / folder / f"broker-{broker_id}"
        for broker_id in (0, 1)
        for folder in ("one", "two")
    ]


def test_without_them_the_logs_are_in_the_data_directory(tmp_path: Path) -> None:
    layout = started(tmp_path)
    assert find_log_directories(layout, 0) == (tmp_path / "data/broker-0",)


@pytest.mark.parametrize("folders", [(), ("data", "two")])
def test_a_copy_of_a_data_directory_has_its_own_logs(
    tmp_path: Path, folders: tuple[str, ...]
) -> None:
    """Beside its original: `up` wanted the original's folders, `log dump` looked into them."""
    layout = started(tmp_path, *folders)
    copy = Layout(tmp_path / "copy")
    shutil.copytree(layout.root, copy.root)
    others = [tmp_path / "two/broker-1"] if folders else []
    assert list(find_log_directories(copy, 1)) == [tmp_path / "copy/broker-1", *others]
    assert tmp_path / "copy/broker-0" in dumped_directories(copy.root)
    settings = {"log.dirs": f"{tmp_path}/copy,{tmp_path}/two"} if folders else {}
    choose_log_directories(copy, settings)


def test_one_may_be_added_and_none_with_logs_left_out(tmp_path: Path) -> None:
    started(tmp_path)
    started(tmp_path, "data", "two")
    for folders in ((), ("data",), ("two",)):
        with pytest.raises(InputError, match="leaves it out"):
            started(tmp_path, *folders)
    for broker_id in range(2):
        (tmp_path / f"two/broker-{broker_id}/t-0").rmdir()
    (tmp_path / "two/broker-0/t-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    started(tmp_path, "data")
    started(tmp_path, "data", "two")
    (tmp_path / "two").rename(tmp_path / "away")
    layout = started(tmp_path, "data")
    assert find_log_directories(layout, 1) == (tmp_path / "data/broker-1",)


def test_the_command_that_empties_a_folder_can_be_pasted(tmp_path: Path) -> None:
    layout = started(tmp_path, "disk one", "two")
    folder = tmp_path / "disk one/broker-0"
    with pytest.raises(InputError, match="leaves it out") as caught:
        started(tmp_path, "two")
    assert (
        (caught.value.hint or "")
        .splitlines()[0]
        .endswith(f"  fairlead broker disks 0 --drain '{folder}' --wait --data {layout.root}")
    )
