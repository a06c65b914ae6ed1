"""Manifests of `up -f`: all findings at once, each with its file, line and field."""

from pathlib import Path

import pytest

from fairlead_cli.drill.manifest import read_drill_document
from fairlead_cli.errors import ExitCode, InputError
from fairlead_cli.local.manifests import check_manifests
from fairlead_cli.main import run
from fairlead_cli.spark.local_job import read_local_job

TOPIC = """\
apiVersion: fairlead.io/v1alpha1
kind: Topic
metadata: {name: %s}
spec: {partitions: %s}
"""
HEAD = "apiVersion: fairlead.io/v1alpha1\nkind: Topic\nmetadata: {name: a}\n"


def write(folder: Path, text: str, name: str = "topics.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_topics_of_several_files_and_documents_are_read(tmp_path: Path) -> None:
    first = write(tmp_path, TOPIC % ("a", 1) + "---\n" + TOPIC % ("b", 2) + "---\n")
    second = write(tmp_path, TOPIC % ("c", 3), "more.yaml")
    specs = check_manifests((first, second))
    assert [(spec.topic_name, spec.partitions) for spec in specs] == [("a", 1), ("b", 2), ("c", 3)]


def test_every_finding_names_file_line_and_field(tmp_path: Path) -> None:
    path = write(tmp_path, TOPIC % ("a", 0) + "---\n" + TOPIC % ("b", '"many"'))
    with pytest.raises(InputError, match="2 mistakes; nothing was started") as raised:
        check_manifests((path,))
    assert raised.value.hint is not None
    first, second = raised.value.hint.splitlines()
    assert f"{path}:1: Topic a: spec.partitions:" in first
    assert f"{path}:6: Topic b: spec.partitions:" in second


def test_the_same_topic_twice_is_found_over_files(tmp_path: Path) -> None:
    first = write(tmp_path, TOPIC % ("a", 1))
    second = write(tmp_path, TOPIC % ("a", 1), "more.yaml")
    with pytest.raises(InputError) as raised:
        check_manifests((first, second))
    assert "declared twice" in (raised.value.hint or "")


@pytest.mark.parametrize("kind", ["Topik", "[Topic]", "{Topic: 1}"])
def test_a_wrong_kind_is_an_error_and_no_silence(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, (TOPIC % ("a", 1)).replace("kind: Topic", f"kind: {kind}"))
    with pytest.raises(InputError) as raised:
        check_manifests((path,))
    assert "kind: expected Topic" in (raised.value.hint or "")


@pytest.mark.parametrize(
    "document",
    [
        "apiVersion: fairlead.io/v1alpha1\nkind: LogCluster\nmetadata: {name: c}\n",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n",
    ],
)
def test_what_only_kubernetes_has_is_passed_over(tmp_path: Path, document: str) -> None:
    assert check_manifests((write(tmp_path, document),)) == []


def test_broken_yaml_names_the_place(tmp_path: Path) -> None:
    path = write(tmp_path, "spec: {a: [1\nb: 2")
    with pytest.raises(InputError, match=rf"{path}:2:\d+: not YAML"):
        check_manifests((path,))


def test_a_key_that_stands_twice_is_no_silence(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + "spec:\n  partitions: 1\n  partitions: 6\n")
    with pytest.raises(InputError, match=rf"{path}:6:3: not YAML: 'partitions' stands twice"):
        check_manifests((path,))
    for read in (read_drill_document, read_local_job):
        with pytest.raises(InputError, match="'partitions' stands twice"):
            read(path)


@pytest.mark.parametrize("depth", [101, 100_000])
def test_what_is_nested_too_deeply_is_refused(tmp_path: Path, depth: int) -> None:
    path = write(tmp_path, HEAD + f"spec: {'[' * depth}\n")
    with pytest.raises(InputError, match=rf"{path}:\d+:\d+: not YAML: it is nested too deeply"):
        check_manifests((path,))
    for read in (read_drill_document, read_local_job):
        with pytest.raises(InputError, match="it is nested too deeply"):
            read(path)


@pytest.mark.parametrize(
    "value", ["2013-02-30", "9" * 5000, "!!int ''", "!!float x", "!!bool x", "!!timestamp x"]
)
def test_a_value_that_there_is_not_is_no_yaml(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, f"{HEAD}spec:\n  partitions: {value}\n")
    with pytest.raises(InputError, match=rf"{path}:5:15: not YAML: it is no value of this kind"):
        check_manifests((path,))
    for read in (read_drill_document, read_local_job):
        with pytest.raises(InputError, match="it is no value of this kind"):
            read(path)


def test_what_is_merged_may_be_said_anew(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + "spec:\n  <<: {partitions: 1}\n  partitions: 6\n")
    (topic,) = check_manifests((path,))
    assert topic.partitions == 6


def test_a_job_that_is_no_text_is_wrong_usage(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot read"):
        read_local_job(path)


def test_a_file_that_is_not_there_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "none.yaml"
    assert run(["up", "-f", str(path), "--data", str(tmp_path / "data")]) == ExitCode.USAGE
    assert f"cannot read the manifest {path}: No such file" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_the_sample_topics_are_right() -> None:
    root = Path(__file__).resolve().parents[3]
    assert "flights" in {
        spec.topic_name for spec in check_manifests((root / "examples/topics.yaml",))
    }
