"""`python -m fairlead_broker --config FILE [--set NAME=VALUE]...`"""

import sys

from fairlead_broker.main import main

sys.exit(main())
