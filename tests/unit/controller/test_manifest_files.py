from pathlib import Path

import pytest

from fairlead_controller.manifest_files import read_manifests
from fairlead_model.resources.topic_manifest import ManifestError

TOPIC = "{apiVersion: fairlead.io/v1alpha1, kind: Topic, metadata: {name: orders}}"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("wrong.json", b'{"kind": ', "line 1 column"),
        ("wrong.json", b"\xff\xfe", "can't decode"),
        ("wrong.yaml", b"a: \xff", "can't decode"),
        ("wrong.yaml", b"kind: [", "expected"),
        ("wrong.yaml", b"until: 2026-02-31", "day is out of range"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    good, wrong = tmp_path / "topics.yaml", tmp_path / name
    good.write_text(TOPIC)
    wrong.write_bytes(content)
    with pytest.raises(ManifestError, match=problem) as refused:
        read_manifests([good, wrong])
    assert refused.value.problems[0].startswith(f"{wrong}: ")


def test_topics_of_all_files_are_read_and_other_kinds_are_left_out(tmp_path: Path) -> None:
    plain, several = tmp_path / "topics.yaml", tmp_path / "topics.json"
    plain.write_text(f"{TOPIC}\n---\nkind: ConfigMap\n---\n")
    several.write_text(
        '[{"apiVersion": "fairlead.io/v1alpha1", "kind": "Topic", "metadata": {"name": "bills"}}]'
    )
    assert [spec.topic_name for spec in read_manifests([plain, several])] == ["orders", "bills"]
