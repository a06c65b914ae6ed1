"""Source text with indentation, and the packing formats of a module."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LINE_MAX: Final = 100
_CODE_NAMES: Final = {
    "?": "BOOL",
    "b": "I8",
    "B": "U8",
    "h": "I16",
    "H": "U16",
    "i": "I32",
    "I": "U32",
    "q": "I64",
    "d": "F64",
    "16s": "UUID",
}


class SourceWriter:
    """Collects lines; knows which `struct.Struct` constants and imports the lines need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.formats: dict[str, str] = {}
        self.primitives: set[str] = set()
        self.depth = 0

    def line(self, text: str = "") -> None:
        self.lines.append(f"{'    ' * self.depth}{text}" if text else "")

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        with self.indented():
            yield

    @contextmanager
    def indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def call(self, before: str, arguments: list[str], after: str = ")") -> None:
        """Write `before` + arguments + `after`, on one line or with a line for each argument."""
        one_line = f"{before}{', '.join(arguments)}{after}"
        if len(one_line) + 4 * self.depth <= LINE_MAX:
            self.line(one_line)
            return
        self.line(before)
        for argument in arguments:
            self.line(f"    {argument},")
        self.line(after)

    def format_constant(self, codes: list[str]) -> str:
        """Return the module's constant for these adjacent fixed-size values."""
        name = "_" + "_".join(_run_names(codes))
        self.formats[name] = ">" + "".join(codes)
        return name

    def use(self, name: str) -> str:
        """Note that the module imports `name` from fairlead_wire.primitives."""
        self.primitives.add(name)
        return name


def _run_names(codes: list[str]) -> list[str]:
    """Return names of codes, with repetitions counted: I32, I32, I64 → I32X2, I64."""
    names: list[str] = []
    counts: list[int] = []
    for code in codes:
        if names and names[-1] == _CODE_NAMES[code]:
            counts[-1] += 1
        else:
            names.append(_CODE_NAMES[code])
            counts.append(1)
    return [
        f"{name}X{count}" if count > 1 else name for name, count in zip(names, counts, strict=True)
    ]
