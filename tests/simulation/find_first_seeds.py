"""Write first_seeds.txt again: for mutants that are caught late, the first seed that catches each.

This takes some minutes of one core. Run it after a change of the order of random choices.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *map(str, (HERE.parent / "support").iterdir())]

from simulator.first_seeds import FIRST_SEEDS, LIST, WORTH_LISTING  # noqa: E402

Search = Callable[[str], int | None]


def all_mutants() -> Iterator[tuple[str, Search]]:
    """Yield the name of each mutant of this folder, and the search of its module."""
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(path.stem)
        mutants = getattr(module, "MUTANTS", None)
        if isinstance(mutants, dict):
            yield from ((name, module.first_seed_that_catches) for name in mutants)
        elif mutants is not None:
            yield from ((name, mutants.first_seed_that_catches) for name in mutants.all)


def main() -> None:
    """Search from seed 0 on, without the present list."""
    FIRST_SEEDS.clear()
    head = [line for line in LIST.read_text().splitlines() if line.startswith("#")]
    found = []
    for name, search in all_mutants():
        seed = search(name)
        print(f"{name}: {seed}", flush=True)
        if seed is not None and seed >= WORTH_LISTING:
            found.append(f"{name} {seed}")
    LIST.write_text("\n".join([*head, *sorted(found)]) + "\n")


if __name__ == "__main__":
    main()
