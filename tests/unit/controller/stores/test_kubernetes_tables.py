"""Tables as objects of the Kubernetes API."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fairlead_controller.decisions.tables.stored_table import (
    TABLE_BYTES_MAX,
    StoreCorruptError,
    StoreError,
    line_bytes,
)
from fairlead_controller.stores.kubernetes_tables import (
    OBJECT_BYTES_MAX,
    KnownTable,
    adopt_answer,
    build_table,
    object_name,
    read_table,
    table_kind,
)
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_controller.stores.table_text import decode_lines, encode_lines


def build(write: TableWrite, known: KnownTable | None = None) -> tuple[dict[str, Any], KnownTable]:
    return build_table(write, known, namespace="ns", cluster="demo")


def stored(write: TableWrite, known: KnownTable | None = None, version: str = "7") -> KnownTable:
    """What is known after a server has taken a write."""
    manifest, content = build(write, known)
    answer = {"metadata": manifest["metadata"] | {"resourceVersion": version, "managedFields": []}}
    return adopt_answer(content, answer)


def test_the_table_of_the_cluster_is_another_kind() -> None:
    assert (table_kind("cluster").kind, object_name("demo", "cluster")) == ("ClusterState", "demo")
    name = object_name("demo", "partitions-00000")
    assert name == "demo-partitions-00000"
    assert table_kind("partitions-00000").kind == "PartitionTable"


def test_rules_and_users_are_in_a_secret_that_the_watch_of_secrets_passes_over() -> None:
    write = TableWrite("security-00000", None, 3, {"scram/u/SCRAM-SHA-256": '{"salt":"\u00e4"}'})
    manifest, _ = build(write)
    assert (manifest["kind"], manifest["apiVersion"]) == ("Secret", "v1")
    assert "spec" not in manifest
    assert manifest["metadata"]["labels"] == {
        "app.kubernetes.io/name": "fairlead",
        "app.kubernetes.io/instance": "demo",
        "app.kubernetes.io/managed-by": "fairlead-operator",
        "fairlead.io/security-of": "demo",
    }
    manifest["metadata"]["resourceVersion"] = "7"
    table, known = read_table(manifest, "demo")
    assert table == "security-00000"
    assert known.stored().lines == write.lines
    assert (known.controller_epoch, known.write_count) == (3, 1)
    damaged = manifest | {"data": manifest["data"] | {"lines": "no base64"}}
    with pytest.raises(StoreCorruptError, match="demo-security-00000"):
        read_table(damaged, "demo")


def test_a_new_table_names_its_cluster_and_has_no_owner() -> None:
    manifest, _ = build(
        TableWrite("partitions-00000", None, 3, {"a": "1", "gone": None, "b": "x y"})
    )
    assert manifest["metadata"] == {
        "name": "demo-partitions-00000",
        "namespace": "ns",
        "labels": {
            "app.kubernetes.io/name": "fairlead",
            "app.kubernetes.io/instance": "demo",
            "app.kubernetes.io/managed-by": "fairlead-operator",
            "fairlead.io/cluster": "demo",
        },
        "annotations": {},
    }
    assert manifest["spec"] == {
        "clusterName": "demo",
        "table": "partitions-00000",
        "controllerEpoch": 3,
        "writeNumber": 1,
        "lines": "a 1\nb x y\n",
    }


def test_a_write_changes_lines_in_place_and_keeps_what_others_added() -> None:
    known = stored(TableWrite("t", None, 1, {"a": "1", "b": "2", "c": "3"}))
    known = replace(known, metadata={**known.metadata, "ownerReferences": ["of somebody"]})
    manifest, _ = build(TableWrite("t", "7", 2, {"b": "4", "a": None, "d": "5"}), known)
    assert manifest["spec"]["lines"] == "b 4\nc 3\nd 5\n"
    assert manifest["metadata"]["resourceVersion"] == "7"
    assert manifest["metadata"]["ownerReferences"] == ["of somebody"]
    assert "managedFields" not in manifest["metadata"]


def test_a_write_without_a_difference_differs_all_the_same() -> None:
    known = stored(TableWrite("t", None, 1, {"a": "1"}))
    manifest, content = build(TableWrite("t", "7", 1, {"a": "1"}), known)
    assert manifest["spec"]["writeNumber"] == 2
    assert content.text == known.text


def test_the_writers_number_is_found_again() -> None:
    known = stored(TableWrite("t", None, 1, {"a": "1"}, write_number=5))
    assert known.stored().write_number == 5
    manifest, content = build(TableWrite("t", "7", 1, {}), known)
    assert "fairlead.io/attempt" not in manifest["metadata"]["annotations"]
    assert read_table(manifest | {"metadata": {**manifest["metadata"], "uid": "u"}}, "demo") == (
        "t",
        KnownTable({**manifest["metadata"], "uid": "u"}, 1, 2, "a 1\n"),
    )
    assert content.stored().write_number == 0


@pytest.mark.parametrize(
    "lines", [{}, {"a": ""}, {"a": " two  blanks "}, {"k/ü": '{"x":"ü\\n"}', "b": "\u2028\r\t"}]
)
def test_lines_are_read_as_they_were_written(lines: dict[str, str]) -> None:
    assert decode_lines(encode_lines(lines), "t") == lines


@pytest.mark.parametrize("lines", [{"a b": "1"}, {"": "1"}, {"a\nb": "1"}, {"a": "1\n2"}])
def test_lines_that_could_not_be_read_back_are_refused(lines: dict[str, str]) -> None:
    with pytest.raises(StoreError, match="cannot hold the line"):
        build(TableWrite("t", None, 1, lines))


@pytest.mark.parametrize("text", ["a 1\na 2\n", "a 1\nno-value\n", " 1\n"])
def test_a_damaged_text_is_found(text: str) -> None:
    with pytest.raises(StoreCorruptError, match=r"demo is damaged in line \d"):
        decode_lines(text, "demo")


@pytest.mark.parametrize(
    "change",
    [
        {"clusterName": "other"},
        {"table": "u"},
        {"controllerEpoch": None},
        {"writeNumber": "many"},
    ],
)
def test_an_object_that_is_not_the_table_is_found(change: dict[str, Any]) -> None:
    manifest, _ = build(TableWrite("t", None, 1, {}))
    manifest["spec"] |= change
    with pytest.raises(StoreCorruptError, match="demo-t"):
        read_table(manifest, "demo")


@pytest.mark.parametrize("character", ["x", '"', "ü", "\x01"])
def test_the_largest_table_is_measured_as_it_is_sent(character: str) -> None:
    size = len(json.dumps(character, ensure_ascii=False).encode()) - 2
    fits = (OBJECT_BYTES_MAX - 1000) // size
    manifest, _ = build(TableWrite("t", None, 1, {"a": character * fits}))
    assert len(json.dumps(manifest, ensure_ascii=False).encode()) <= OBJECT_BYTES_MAX
    with pytest.raises(StoreError, match="table t would have"):
        build(TableWrite("t", None, 1, {"a": character * (fits + 1000)}))


def test_a_full_table_fits_whatever_others_have_annotated() -> None:
    """The API server takes 256 KiB of annotations."""
    known = stored(TableWrite("t", None, 1, {}))
    strange = {**known.metadata, "annotations": {"example.com/a": "x" * (256 << 10)}}
    line = '"' * ((TABLE_BYTES_MAX - line_bytes("k", "")) // 2)
    manifest, _ = build(TableWrite("t", "7", 1, {"k": line}), replace(known, metadata=strange))
    assert manifest["spec"]["lines"] == f"k {line}\n"
