"""A thread whose `join` raises the error that ended it."""

import threading
from collections.abc import Callable


class WatchedThread:
    """Runs `work`. With a plain thread, a script would not notice that it has died."""

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
