"""`python -m fairlead_controller.zookeeper`."""

import sys

from fairlead_controller.zookeeper.main import main

if __name__ == "__main__":
    sys.exit(main())
