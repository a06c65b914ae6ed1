r"""Files of settings in the syntax of Java's `Properties`, as `server.properties` has it. Pure.

A name ends at the first `=`, `:` or blank. A backslash escapes the next character (`\n`, `\t`,
`\\`, `\u00e9` …), and at the end of a line continues that line. Two things differ from Java's: the
text is UTF-8, and a name without a value is refused, because it is most often a slip.
`fairlead_model.security.client_texts` writes values for such files.
Source: https://docs.oracle.com/javase/8/docs/api/java/util/Properties.html#load-java.io.Reader-
"""

import re
from collections.abc import Iterator
from typing import Final

from fairlead_model.configs.config_key import ConfigError

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_NAME: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*")
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=: \t\f][ \t\f]*")
_ESCAPE: Final = re.compile(r"(?:\\u[0-9A-Fa-f]{4})+|\\(.)")
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def decode_properties(content: bytes, file: str) -> dict[str, str]:
    """Return the names and values in a file's bytes; ConfigError, which names the file."""
    try:
        return read_properties(content.decode())
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(file, f"{file}: line {line} is not UTF-8") from None
    except ConfigError as error:
        raise ConfigError(error.name, f"{file}: {error}") from None


def read_properties(text: str) -> dict[str, str]:
    """Return the names and values of a file; ConfigError for a line that is no NAME=VALUE.

    Values are without blanks around them, as Kafka takes them.
    """
    values = {}
    for number, line in _logical_lines(text):
        where = f"line {number}"
        matched = _NAME.match(line)
        name = matched[0] if matched else ""
        separator = _SEPARATOR.match(line, len(name))
        if separator is None:
            # The message does not quote the line: it may be part of a key or of a password.
            raise ConfigError(where, f"{where} is not NAME=VALUE")
        values[_unescape(name, where)] = _unescape(line[separator.end() :], where).strip()
    return values


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is neither empty nor a comment, with the number of its last part."""
    pending = ""
    number = 0
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        part = raw.lstrip(_BLANKS)
        if not pending and (not part or part[0] in "#!"):
            continue
        line = pending + part
        pending = ""
        if (len(part) - len(part.rstrip("\\"))) % 2:
            pending = line[:-1]
        elif line:
            yield number, line
    if pending:
        yield number, pending


def _unescape(text: str, where: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        if match[1] is None:
            units = bytes.fromhex(match[0].replace("\\u", ""))
            try:
                return units.decode("utf-16-be")
            except UnicodeDecodeError:
                raise malformed from None
        if match[1] == "u":
            raise malformed
        return _ESCAPED.get(match[1], match[1])

    malformed = ConfigError(where, f"{where} has a malformed \\uXXXX")
    return _ESCAPE.sub(replaced, text)
