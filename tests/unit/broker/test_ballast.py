"""Which disks a drill may fill: whole file systems that nobody else uses."""

import pytest

from fairlead_broker.ballast import judge_mounts, judge_room

ROOT = "22 1 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/a"
HOSTS = "23 22 8:1 /var/lib/kubelet/pods/1/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw"
VOLUME = "24 22 8:16 / /var/lib/fairlead rw,relatime shared:1 - ext4 /dev/sdb rw"
EMPTY_DIR = "24 22 8:1 /pods/1/volumes/data /var/lib/fairlead rw - ext4 /dev/sda1 rw"
DATA = "/var/lib/fairlead/data"


def judge(*lines: str, path: str = DATA) -> str:
    return judge_mounts("\n".join(lines), path)


def test_a_volume_of_its_own_may_be_filled() -> None:
    assert judge(ROOT, HOSTS, VOLUME) == ""
    assert judge(ROOT, HOSTS, VOLUME, path="/var/lib/fairlead") == ""
    assert judge(ROOT, VOLUME.replace("ext4", "xfs")) == ""
    blank = VOLUME.replace("/var/lib/fairlead", "/my\\040disk")
    assert judge(ROOT, blank, path="/my disk/data") == ""


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((ROOT, HOSTS), "a folder of the machine's file system"),
        ((), "a folder of the machine's file system"),
        ((ROOT, HOSTS, EMPTY_DIR), "is only the folder /pods/1/volumes/data"),
        ((ROOT, HOSTS.replace("8:1", "8:16"), VOLUME), "and /etc/hosts are on one file system"),
        ((ROOT, VOLUME.replace("ext4", "nfs4")), "of type nfs4"),
        ((ROOT, VOLUME.replace("ext4", "tmpfs")), "of type tmpfs"),
        ((ROOT, VOLUME.replace("/fairlead", "/fair")), "a folder of the machine's file system"),
    ],
)
def test_what_others_use_may_not(lines: tuple[str, ...], why: str) -> None:
    assert why in judge(*lines)


def test_a_disk_that_is_nearly_full_would_hardly_have_room_again() -> None:
    assert judge_room("/data", 64 << 20) == ""
    assert "only 63 MiB are free" in judge_room("/data", (64 << 20) - 1)
