"""Folders of backups, on this machine and in an object store: the same rules hold for both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_cli.errors import CliError, InputError
from fairlead_cli.exports.backups import remove_oldest, save
from fairlead_cli.exports.folders import Folder, open_folder
from fairlead_cli.exports.s3_address import parse_file, parse_folder

if TYPE_CHECKING:
    from pathlib import Path

    from object_store import Bucket, ObjectStoreServer


class LocalPlace:
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path)

    def put(self, name: str) -> None:
        (self.path / name).write_text("{}")

    def read(self, name: str) -> Any:
        return json.loads((self.path / name).read_text())

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())


class BucketPlace:
    """A folder of a bucket."""

    def __init__(self, bucket: Bucket, folder: str) -> None:
        self.bucket = bucket
        self.folder = folder
        self.place = f"s3://{bucket.name}/{folder}".rstrip("/")

    def put(self, name: str) -> None:
        self.bucket.put(self.folder + name, b"{}")

    def read(self, name: str) -> Any:
        return json.loads(self.bucket.get(self.folder + name))

    def names(self) -> list[str]:
        return sorted(key.removeprefix(self.folder) for key in self.bucket.list_keys())


Place = LocalPlace | BucketPlace


@pytest.fixture(params=["local", "root of a bucket", "folder of a bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return LocalPlace(tmp_path)
    aws: ObjectStoreServer = request.getfixturevalue("aws")
    return BucketPlace(aws.make_bucket(), "" if "root" in request.param else "clusters/all/")


def saved_name(folder: Folder, place: Place, document: dict[str, Any]) -> str:
    where = save(folder, "a", document)
    assert where.startswith(f"{place.place}/a-")
    return where.removeprefix(f"{place.place}/")


def test_only_old_exports_of_the_same_cluster_are_removed(place: Place) -> None:
    folder = open_folder(place.place)
    others = ["a-b-20260101T000000.000000Z.json", "a-notes.json", "b-20260101T000000.000000Z.json"]
    for other in others:
        place.put(other)
    saved = [saved_name(folder, place, {"number": number}) for number in range(5)]
    assert saved == sorted(saved)
    assert [place.read(name) for name in saved] == [{"number": number} for number in range(5)]
    assert remove_oldest(folder, "a", keep=3) == saved[:2]
    assert place.names() == sorted([*others, *saved[2:]])
    assert remove_oldest(folder, "a", keep=3) == []


def test_a_folder_below_is_another_folder(aws: ObjectStoreServer) -> None:
    bucket = aws.make_bucket()
    name = "a-20260101T000000.000000Z.json"
    neighbours = [f"x/a-b/{name}", f"x/y/{name}", f"xy/{name}", name]
    for key in [*neighbours, f"x/{name}"]:
        bucket.put(key, b"{}")
    folder = open_folder(f"s3://{bucket.name}/x/")
    save(folder, "a", {})
    assert remove_oldest(folder, "a", keep=1) == [name]
    assert set(neighbours) < set(bucket.list_keys())
    assert len(bucket.list_keys()) == len(neighbours) + 1


def test_a_backup_is_kept_whose_forerunners_may_not_be_removed(aws: ObjectStoreServer) -> None:
    bucket = aws.make_bucket()
    bucket.deny("s3:DeleteObject")
    folder = open_folder(f"s3://{bucket.name}")
    for number in range(2):
        save(folder, "a", {"number": number})
    with pytest.raises(CliError, match=r"cannot remove s3://.*access denied"):
        remove_oldest(folder, "a", keep=1)
    assert len(bucket.list_keys()) == 2


def test_a_bucket_that_locks_objects_keeps_what_is_removed_as_versions(
    aws: ObjectStoreServer,
) -> None:
    bucket = aws.make_bucket(locks_objects=True)
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    lock = {"ObjectLockEnabled": "Enabled", "Rule": rule}
    bucket.call("put_object_lock_configuration", ObjectLockConfiguration=lock)
    folder = open_folder(f"s3://{bucket.name}")
    for number in range(2):
        save(folder, "a", {"number": number})
    (removed,) = remove_oldest(folder, "a", keep=1)
    assert len(bucket.list_keys()) == 1
    versions = bucket.call("list_object_versions")["Versions"]
    assert removed in [version["Key"] for version in versions]


def test_a_local_folder_that_lets_nothing_go_is_told(tmp_path: Path) -> None:
    (tmp_path / "a-20260101T000000.000000Z.json").mkdir()
    folder = open_folder(str(tmp_path))
    save(folder, "a", {})
    with pytest.raises(CliError, match="cannot remove"):
        remove_oldest(folder, "a", keep=1)


@pytest.mark.parametrize(
    ("text", "key"),
    [("s3://b", ""), ("s3://b/", ""), ("s3://b/x", "x/"), ("s3://b/x/y//", "x/y/")],
)
def test_a_folder_is_written_with_and_without_its_slash(text: str, key: str) -> None:
    address = parse_folder(text)
    assert (address.bucket, address.key) == ("b", key)


@pytest.mark.parametrize("text", ["s3://", "s3:///key", "s3://a b/key", "s3://arn:aws:s3/key"])
def test_an_address_without_a_bucket_is_refused(text: str) -> None:
    for parse in (parse_file, parse_folder):
        with pytest.raises(InputError, match="names no bucket"):
            parse(text)


@pytest.mark.parametrize("text", ["s3://b", "s3://b/", "s3://b/folder/"])
def test_a_folder_is_no_file(text: str) -> None:
    with pytest.raises(InputError, match="names a folder") as refused:
        parse_file(text)
    assert parse_file(str(refused.value.hint).split()[-1]).key.endswith("metadata.json")
