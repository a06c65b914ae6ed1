"""JSON of RFC 8259 and RFC 7493: whatever else `json` would accept is refused.

No NaN and no infinity, no name twice in an object, only UTF-8, no half of a surrogate pair, no
number that does not fit into a double. `json_frames` has bounded sizes and depth before.
"""

from __future__ import annotations

import json
from typing import Any


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


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
_DECODER_OF_INTS = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_number
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def load_json(data: bytes | bytearray, *, has_ints: bool = False) -> Any:
    """Parse one document; JsonError.

    With `has_ints` every number without a fraction is an int, 1.0 and 1e0, too.
    """
    decoder = _DECODER_OF_INTS if has_ints else _DECODER
    try:
        return decoder.decode(data.decode())
    except JsonError:
        raise
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start} is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise JsonError(f"{error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise JsonError("it is nested too deeply") from error
    except ValueError as error:
        raise JsonError("a number has too many digits") from error


def dump_json(value: Any) -> bytes:
    """Encode a value without blanks; JsonError if JSON cannot express it."""
    try:
        return _ENCODER.encode(value).encode()
    except UnicodeEncodeError as error:
        raise JsonError("a text has half of a surrogate pair") from error
    except RecursionError as error:
        raise JsonError("it is nested too deeply") from error
    except ValueError as error:
        raise JsonError("a number is too large") from error
