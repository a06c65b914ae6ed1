"""What decoders and encoders both need of a struct: sizes, groups of fields, conditions."""

from typing import Final

from codegen.schema import FIXED_FORMATS, Field, StructSchema
from codegen.versions import VersionRange

_FORMAT_SIZES: Final = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8}


def format_size(code: str) -> int:
    return 16 if code == "16s" else _FORMAT_SIZES[code]


def groups(fields: list[Field], window: VersionRange) -> list[tuple[str | None, list[Field]]]:
    """Group adjacent fields that the same versions carry, with the test for these versions."""
    found: list[tuple[str | None, list[Field]]] = []
    for field in fields:
        condition = field.versions.condition(window)
        if found and found[-1][0] == condition:
            found[-1][1].append(field)
        else:
            found.append((condition, [field]))
    return found


def negated(condition: str) -> str:
    if condition.startswith("version >= "):
        return condition.replace(">=", "<")
    if condition.startswith("version <= "):
        return condition.replace("<=", ">")
    return f"not {condition}"


def is_tag(field: Field, window: VersionRange, *, is_flexible: bool) -> bool:
    """Tell whether the field is in the tag section in these versions."""
    return is_flexible and not (field.tagged & window).is_empty


def minimum_size(struct: StructSchema, window: VersionRange, *, is_flexible: bool) -> int:
    """Return the fewest bytes that an instance can occupy in any version of the window."""
    total = 1 if is_flexible else 0
    for field in struct.fields:
        if field.versions.covers(window) and not is_tag(field, window, is_flexible=is_flexible):
            if field.is_array:
                total += 1 if is_flexible else 4
            else:
                total += element_minimum(field, window, is_flexible=is_flexible)
    return max(total, 1)


def element_minimum(field: Field, window: VersionRange, *, is_flexible: bool) -> int:
    """Return the fewest bytes of one value of the field, or of one element of the array."""
    code = FIXED_FORMATS.get(field.type)
    if code is not None:
        return format_size(code)
    if field.struct is not None:
        if not field.is_array and not (field.nullable & window).is_empty:
            return 1
        return minimum_size(field.struct, window, is_flexible=is_flexible)
    if is_flexible:
        return 1
    return 2 if field.type == "string" else 4
