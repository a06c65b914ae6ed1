"""The contents of a Secret's manifest. Pure."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any


def read_data(held: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the content of a Secret; values that are not base64 are left out."""
    data = {}
    for key, text in (held.get("data") or {}).items():
        try:
            data[key] = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError):
            continue
    return data
