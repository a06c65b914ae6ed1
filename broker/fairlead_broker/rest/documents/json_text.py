"""JSON of RFC 8259 and RFC 7493: whatever else `json` would accept is refused.

No NaN and no infinity, no name twice in an object, only UTF-8, no half of a surrogate pair, no
number that does not fit into a double. `json_frames` has bounded sizes and depth before.

The numbers of a large text can take a fifth of a second. `json` would hold the interpreter's lock
for all of this time, even in a thread. So what is larger than `SMALL_BYTES` is read with a call of
Python for each number, and written in short runs: other threads go on in between.
"""

from __future__ import annotations

import json
from typing import Any, Final

SMALL_BYTES: Final = 16 * 1024
"""A text of this size takes some 10 ms at worst; larger ones are for `Slices.aside`."""
_RUN: Final = 32
_NESTED: Final = frozenset({list, dict})


class JsonError(ValueError):
    """A text is not acceptable JSON; the message says why."""


def _refuse_constant(name: str) -> Any:
    raise JsonError(f"{name} is no JSON")


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(members)
    if len(result) != len(members):
        seen: set[str] = set()
        for repeated, _ in members:
            if repeated in seen:
                break
            seen.add(repeated)
        raise JsonError(f"an object has the name {repeated[:40]!a} twice")
    return result


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _whole(text: str) -> int:
    return int(text)


def _real(text: str) -> float:
    return float(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
_DECODER_OF_INTS = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_number
)
_SLOW_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_refuse_constant,
    parse_int=_whole,
    parse_float=_real,
)
_SLOW_DECODER_OF_INTS = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_constant=_refuse_constant,
    parse_int=_whole,
    parse_float=_number,
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def load_json(data: bytes | bytearray, *, has_ints: bool = False) -> Any:
    """Parse one document; JsonError.

    With `has_ints` every number without a fraction is an int, 1.0 and 1e0, too.
    """
    if len(data) > SMALL_BYTES:
        decoder = _SLOW_DECODER_OF_INTS if has_ints else _SLOW_DECODER
    else:
        decoder = _DECODER_OF_INTS if has_ints else _DECODER
    try:
        return decoder.decode(data.decode())
    except JsonError:
        raise
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise JsonError(f"{error.msg.removesuffix(' at')} at character {error.pos}") from error
    except RecursionError as error:
        raise JsonError("it is nested too deeply") from error
    except ValueError as error:
        raise JsonError("a number has too many digits") from error


def dump_json(value: Any, *, is_large: bool = False) -> bytes:
    """Encode a value without blanks; JsonError if JSON cannot express it.

    `is_large`: the value may be of a text larger than `SMALL_BYTES`.
    """
    try:
        if not is_large:
            return _ENCODER.encode(value).encode()
        written = bytearray()
        _write(value, written)
        return bytes(written)
    except UnicodeEncodeError as error:
        raise JsonError("a text has half of a surrogate pair") from error
    except RecursionError as error:
        raise JsonError("it is nested too deeply") from error
    except ValueError as error:
        raise JsonError("a number is too large") from error


def _write(value: Any, written: bytearray) -> None:
    if isinstance(value, dict):
        opening = b"{"
        for name, each in value.items():
            written += opening + _ENCODER.encode(name).encode() + b":"
            _write(each, written)
            opening = b","
        written += b"}" if value else b"{}"
    elif isinstance(value, list):
        written += b"["
        for start in range(0, len(value), _RUN):
            run = value[start : start + _RUN]
            written += b"," if start else b""
            if _NESTED.isdisjoint(map(type, run)):
                written += _ENCODER.encode(run)[1:-1].encode()
                continue
            for at, each in enumerate(run):
                written += b"," if at else b""
                _write(each, written)
        written += b"]"
    else:
        written += _ENCODER.encode(value).encode()
