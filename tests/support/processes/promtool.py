"""Prometheus' own checker of alerts: the one on the path, or built once from its source by Go."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from compiled_programs import build

VERSION: Final = "0.300.1"
"""Of the Go module; Prometheus itself calls it 3.0.1."""
MODULE: Final = "github.com/prometheus/prometheus"
PACKAGE: Final = f"{MODULE}/cmd/promtool"
CACHE: Final = Path(__file__).parents[3] / ".cache" / f"promtool-{VERSION}"


def ensure_promtool() -> Path:
    """Return the program; the first time it is built, which takes minutes. MissingError."""
    if found := shutil.which("promtool"):
        return Path(found)
    program = CACHE / "promtool"
    if not program.exists():
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        # Its module replaces others, and can be built from within a module alone.
        build(["go", "mod", "init", "promtool"], CACHE)
        build(["go", "get", f"{PACKAGE}@v{VERSION}"], CACHE)
        build(["go", "build", "-o", "built", PACKAGE], CACHE)
        (CACHE / "built").rename(program)
    return program
