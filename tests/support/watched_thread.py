"""A thread whose end is known: whoever joins it gets what it failed with."""

import threading
from collections.abc import Callable


class WatchedThread:
    """Runs `work`. A script would not see that a plain thread has died, and find all right."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    @property
    def was_started(self) -> bool:
        return self._thread.ident is not None

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the work, and raise what ended it early."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._failure = error
