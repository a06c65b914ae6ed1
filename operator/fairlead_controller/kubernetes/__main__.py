"""`python -m fairlead_controller.kubernetes`: a controller process on Kubernetes.

Prints one line when it listens; everything else goes to stderr. Exit codes: 0 stopped on request, 1
a port is taken, 2 wrong usage or no access to the API server, 3 the process may no longer act.
"""

import asyncio
import logging
import sys

from fairlead_controller.kubernetes.process import run_candidate
from fairlead_controller.kubernetes.settings import SettingsError, read_settings
from fairlead_kube.credentials import load_credentials
from fairlead_kube.errors import CredentialsError


def main() -> int:
    """Run a candidate; return the exit code."""
    try:
        settings = read_settings()
        credentials = load_credentials()
    except (SettingsError, CredentialsError) as error:
        print(f"fairlead-candidate: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(
        level=settings.log_level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    return asyncio.run(run_candidate(settings, credentials))


if __name__ == "__main__":
    sys.exit(main())
