"""`python -m fairlead_spark.job DOCUMENT`: the driver of a job.

Exit codes: 0 the job has ended, 1 it failed, 2 the document cannot be used, 143 it was asked to
end.
"""

import logging
import sys
from pathlib import Path

from fairlead_spark.job.document import JobDocumentError, read_job
from fairlead_spark.job.driver import Driver

ARGUMENTS = 2


def main() -> int:
    """Run the job; return the exit code."""
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # py4j logs every call.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if len(sys.argv) != ARGUMENTS:
        print("usage: python -m fairlead_spark.job DOCUMENT", file=sys.stderr)
        return 2
    document = Path(sys.argv[1])
    try:
        job = read_job(document)
    except JobDocumentError as error:
        print(f"fairlead-job: {error}", file=sys.stderr)
        return 2
    return Driver(job, document).run()


if __name__ == "__main__":
    sys.exit(main())
