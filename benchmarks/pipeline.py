"""Entry of `make pipeline`: finds the package beside this file, wherever it is started from."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

if __name__ == "__main__":
    from fairlead_bench.interruption import run_interruptibly
    from fairlead_bench.scenarios.pipeline import main

    sys.exit(run_interruptibly(main))
