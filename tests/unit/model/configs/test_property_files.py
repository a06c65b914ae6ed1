"""Files of settings mean what Java's `Properties`, and so Kafka, reads in them."""

import pytest

from fairlead_model.configs.config_values import ConfigError
from fairlead_model.configs.property_files import decode_properties, read_properties
from fairlead_model.security.client_texts import escape_utf8_property


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            "num.partitions: 4\nlog.dirs /a\n\tnode.id\t=\t1",
            "num.partitions=4 log.dirs=/a node.id=1",
        ),
        ("a=b:c=d\nb\f:=c", "a=b:c=d b==c"),
        ("a\\:b=c\na\\ c : d\\=e", "a:b=c a\xa0c=d=e"),
        ("a=C:\\\\logs\nb=^CN=(.*?)\\\\.x$", "a=C:\\logs b=^CN=(.*?)\\.x$"),
        ('a=\\u00e9\\ud83d\\ude00\nb=\\z\\"q\\"', 'a=é😀 b=z"q"'),
        # An even number of backslashes ends a line, and a blank after one is the blank's escape.
        ("a=b\\\\\nc=d", "a=b\\ c=d"),
        ("a=b\\ \nc=d", "a=b c=d"),
        ("# note \\\na=b\\\n\nc=d", "a=b c=d"),
        ("a=b\\\r\n   #c\rd=e", "a=b#c d=e"),
        ("a=b\u2028c", "a=b\u2028c"),
    ],
)
def test_java_reads_the_same(text: str, read: str) -> None:
    pairs = (each.replace("\xa0", " ").partition("=") for each in read.split(" "))
    assert read_properties(text) == {name: value for name, _, value in pairs}


@pytest.mark.parametrize("value", ["\\u00e", "\\uzzzz", "\\u", "\\ud800"])
def test_an_escape_that_is_no_character_is_refused_with_its_line(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^line 2 has a malformed \\uXXXX$"):
        read_properties(f"a=b\nc={value}")


@pytest.mark.parametrize(
    "value", ["a\\", " \\ b\\\\c", "a\nlisteners=B", "\t\f\r", "é#=:!", "\\u00e9"]
)
def test_what_is_written_is_read_again(value: str) -> None:
    read = read_properties(f"a={escape_utf8_property(value)}\nb=c")
    assert read == {"a": value.strip(), "b": "c"}


def test_properties_hold_comments_and_continued_lines() -> None:
    text = "# a comment\n\n! another\n num.partitions = 4 \nlisteners=A://h:1,\\\n  B://h:2\n"
    assert read_properties(text) == {"num.partitions": "4", "listeners": "A://h:1,B://h:2"}


def test_a_property_line_without_a_value_is_refused_with_its_number() -> None:
    with pytest.raises(ConfigError, match="line 2"):
        read_properties("num.partitions=1\nnonsense\n")


def test_a_line_that_is_continued_at_the_end_of_the_file_counts() -> None:
    text = "node.id=1\nlog.dirs=/a,\\\n/b\\"
    assert read_properties(text) == {"node.id": "1", "log.dirs": "/a,/b"}
    with pytest.raises(ConfigError, match="line 2"):
        read_properties("node.id=1\nnonsense\\")


def test_a_line_that_is_refused_is_not_shown() -> None:
    """It may be one of a private key, which somebody has put here as it is."""
    text = "ssl.keystore.key=-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n"
    with pytest.raises(ConfigError, match=r"^line 2 is not NAME=VALUE$"):
        read_properties(text)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"node.id=1\n\nlog.dirs\n", "s.properties: line 3 is not NAME=VALUE"),
        (b"node.id=1\n# caf\xe9\n", "s.properties: line 2 is not UTF-8"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_name(content: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^{problem}$"):
        decode_properties(content, "s.properties")
