"""`python -m fairlead_broker --config FILE [--set NAME=VALUE]...` runs a broker."""

import sys

from fairlead_broker.main import main

sys.exit(main())
