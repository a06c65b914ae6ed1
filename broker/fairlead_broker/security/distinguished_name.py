"""The name of a certificate's subject as Kafka's rules and ACLs write it.

It has the form of RFC 2253 that Java's `X500Principal.getName` returns: the most specific part
first, nine attributes by name, all others by number with the DER of their value. Python's `ssl`
returns the parts in another order and decoded, so this module reads the name from its DER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTINGUISHED_NAME_LENGTH_MAX: Final = 4_096
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OBJECT_IDENTIFIER: Final = 0x06
_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
"""UTF8, Printable, Teletex, IA5, General, Universal and BMP strings."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class BadNameError(ValueError):
    """A name that is not DER, or is too long."""


def format_distinguished_name(der: bytes) -> str:
    """Return the RFC 2253 form of a Name in DER."""
    tag, content, rest = _take(der)
    if tag != _SEQUENCE or rest:
        raise BadNameError("the name is no sequence")
    parts = ["+".join(_attributes(body)) for _, body in _each(content, _SET)]
    text = ",".join(reversed(parts))
    if len(text) > DISTINGUISHED_NAME_LENGTH_MAX:
        raise BadNameError(f"the name has {len(text)} characters")
    return text


def _attributes(der: bytes) -> Iterator[str]:
    for _, body in _each(der, _SEQUENCE):
        tag, oid, rest = _take(body)
        if tag != _OBJECT_IDENTIFIER:
            raise BadNameError("an attribute without its type")
        value_tag, value, after = _take(rest)
        if after:
            raise BadNameError("an attribute with two values")
        number = _dotted(oid)
        name = _NAMES.get(number)
        if name is None or value_tag not in _TEXT_TAGS:
            yield f"{name or number}=#{rest.hex()}"
        else:
            # Java decodes strings of every type as UTF-8.
            yield f"{name}={_escape(value.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    lead = len(text) - len(text.lstrip(" \r"))
    trail = len(text.rstrip(" \r"))
    out = []
    for index, character in enumerate(text):
        if character == "\0":
            out.append("\\00")
        elif character in _ESCAPED or index < lead or index >= trail:
            out.append("\\" + character)
        else:
            out.append(character)
    return "".join(out)


def _dotted(oid: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or oid[-1] & 0x80:
        raise BadNameError("an attribute type that is cut off")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _each(der: bytes, tag: int) -> Iterator[tuple[int, bytes]]:
    while der:
        found, body, der = _take(der)
        if found != tag:
            raise BadNameError(f"a tag {found:#x} where {tag:#x} belongs")
        yield found, body


def _take(der: bytes) -> tuple[int, bytes, bytes]:
    """Split off one element: return its tag, its content, and the bytes after it."""
    if len(der) < 2:
        raise BadNameError("the name is cut off")
    size, start = der[1], 2
    if size & 0x80:
        count = size & 0x7F
        start += count
        size = int.from_bytes(der[2:start], "big")
    if start + size > len(der):
        raise BadNameError("the name is cut off")
    return der[0], der[start : start + size], der[start + size :]
