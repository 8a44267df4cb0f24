"""A clock that moves only when something happens, and a device whose work really runs later, on a thread."""

import queue
import threading


class FakeClock:
    """Time in nanoseconds; reading it is free unless ``reading_ns`` says otherwise."""

    def __init__(self, start_ns: int = 1_000_000, reading_ns: int = 0) -> None:
        self.now_ns = start_ns
        self.reading_ns = reading_ns

    def __call__(self) -> int:
        self.now_ns += self.reading_ns
        return self.now_ns

    def advance(self, ns: int) -> None:
        self.now_ns += ns


class FakeDevice:
    """Work is queued by the host and run by a thread, as late as an asynchronous device may: when it is waited for.

    Each piece takes device time (the clock moves while it runs) and leaves a line in ``log``.
    """

    kind = "cpu"
    description = "fake device"

    def __init__(self, clock: FakeClock, log: list[str] | None = None) -> None:
        self.clock = clock
        self.log = [] if log is None else log
        self._queue: queue.Queue[tuple[str, int] | None] = queue.Queue()
        self._may_run = threading.Semaphore(0)
        self._waiting = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, name: str, duration_ns: int) -> None:
        """Queue work and return at once, as a kernel launch does."""
        self._waiting += 1
        self._queue.put((name, duration_ns))

    @property
    def pending(self) -> int:
        return self._waiting

    def synchronize(self) -> None:
        self.log.append("synchronize")
        for _ in range(self._waiting):
            self._may_run.release()
        self._queue.join()
        self._waiting = 0

    def close(self) -> None:
        for _ in range(self._waiting):
            self._may_run.release()
        self._queue.put(None)
        self._thread.join(timeout=10)

    def _work(self) -> None:
        while True:
            piece = self._queue.get()
            if piece is None:
                return
            self._may_run.acquire()
            name, duration_ns = piece
            self.clock.advance(duration_ns)
            self.log.append(f"{name} done")
            self._queue.task_done()
