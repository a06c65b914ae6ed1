"""What is said of a damaged table of rules and users: where it is, and nothing of what it holds."""

import base64

import pytest

from fairlead_controller.decisions.tables.lines import parse_line
from fairlead_controller.decisions.tables.stored_table import StoreCorruptError, StoreError
from fairlead_controller.stores.kubernetes_tables import read_table as read_object
from fairlead_controller.stores.zookeeper_tables import read_table as read_znode
from fairlead_zookeeper.operations import Stat, Znode

TABLE = "security-00000"
HEAD = b'{"table":"security-00000","epoch":3,"write":5,"attempt":0}\n'
KEY = "c2VjcmV0a2V5c2VjcmV0a2V5c2VjcmV0a2V5c2VjcmU="
LINE = f'scram/al/SCRAM-SHA-256 {{"stored_key":"{KEY}","iterations":4096}}\n'.encode()
DAMAGES = {
    "not UTF-8": LINE + b"acl/x \xff\n",
    "a line break in a line": LINE.replace(b'"stored_key"', b'\n"stored_key"'),
    "a line break and a blank": LINE.replace(b'"stored_key":', b'\n"stored_key": ') * 2,
    "the same line twice": LINE + LINE,
}


def of_znode(text: bytes) -> None:
    read_znode(TABLE, Znode(text, Stat(1, 1, 1, 0))).stored()


def of_object(text: bytes) -> None:
    fields = {"clusterName": b"demo", "table": TABLE.encode(), "controllerEpoch": b"3"}
    fields |= {"writeNumber": b"5", "lines": text}
    manifest = {
        "metadata": {"name": f"demo-{TABLE}", "resourceVersion": "1"},
        "data": {name: base64.b64encode(data).decode() for name, data in fields.items()},
    }
    read_object(manifest, "demo")[1].stored()


@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_of_a_security_table_is_told(damage: str) -> None:
    """Its reader's error is logged, and shown by `/healthz` to everybody who reaches the port."""
    for read, text in ((of_znode, HEAD + DAMAGES[damage]), (of_object, DAMAGES[damage])):
        with pytest.raises(StoreError) as caught:
            read(text)
        told = str(caught.value)
        assert KEY[:12] not in told and "stored_key" not in told
        assert TABLE in told


def test_a_line_in_the_place_of_the_head_is_not_told() -> None:
    with pytest.raises(StoreCorruptError) as caught:
        of_znode(LINE)
    assert KEY[:12] not in str(caught.value)


@pytest.mark.parametrize("number", [b"1e999", b"[" * 100_000])
def test_a_head_that_no_controller_writes_is_a_damaged_table(number: bytes) -> None:
    """Any other error ended the process of each candidate, without a word of the table."""
    with pytest.raises(StoreCorruptError, match="damaged in line 1"):
        of_znode(HEAD.replace(b'"epoch":3', b'"epoch":' + number))


def test_a_record_without_bottom_is_a_damaged_record() -> None:
    with pytest.raises(StoreCorruptError, match="quota/user/a"):
        parse_line("quota/user/a", "[" * 100_000, dict)
