"""What a broker keeps in memory: libraries of features are there for those alone who use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

# Their compiled parts, which the memory map of a process names.
DEAR = {
    "cryptography": "tokens and certificates",
    "_re2": "regular expressions of clients",
}


@pytest.mark.parametrize("library", DEAR, ids=str)
def test_a_broker_without_a_feature_has_no_library_of_it(live_cluster: Any, library: str) -> None:
    mapped = Path(f"/proc/{live_cluster.brokers[0].pid}/maps").read_text()
    assert "google_crc32c" in mapped, "compiled libraries are named there"
    assert library not in mapped, f"{library} is for {DEAR[library]}"
