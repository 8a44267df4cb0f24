"""Sides of a comparison that are threads: they say through a real line what a test process says, and time nothing."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pytest_stepprof.ab.baton import BatonLostError, Line, Player
from pytest_stepprof.ab.process import Finished
from pytest_stepprof.ab.seat import Seat
from pytest_stepprof.record.measurement import ColdStart
from pytest_stepprof.record.turns import (
    Arrived,
    Begin,
    Begun,
    Collected,
    Ended,
    Finish,
    FoundTest,
    Hello,
    Order,
    Prepare,
    Prepared,
    Release,
    Selected,
    Visit,
    Visited,
)

LONG_STEP_NS = 200_000_000  # so long that few visits are planned


def prepared(step_ns=LONG_STEP_NS, threads=1):
    return Prepared(
        cold_start=ColdStart(step_ns=9, read_ns=None, iterator_ns=None, load_ns=None),
        warmup_ns=(step_ns,),
        step_ns=step_ns,
        beside_ns=0,
        restart_ns=1000,
        clock_cost_ns=50,
        most_steps_per_sample=None,
        threads=threads,
    )


class FakeLiving:
    """A process that is none: it remembers what was done to it, in a log that both sides share."""

    def __init__(self, side: str, log: list[tuple[str, ...]], tmp_path: Path) -> None:
        self.side, self.log = side, log
        self.stopped = False
        self.pinned: tuple[int, ...] | None = None
        self.running = True
        self.exit_status = 0
        self.killed = False
        self.all_stop = True
        self.pytest_log = tmp_path / f"{side}.log"
        self.pytest_log.write_text("")

    def alive(self) -> bool:
        return self.running

    def wait(self, limit_s: float) -> bool:
        return not self.running

    def stop(self) -> None:
        self.stopped = True
        self.log.append((self.side, "stop"))

    def go_on(self) -> None:
        if self.stopped:
            self.log.append((self.side, "go on"))
        self.stopped = False

    def look(self) -> None:
        self.log.append((self.side, "look"))

    def stops_wholly(self) -> bool:
        return self.all_stop

    def pin(self, cpus) -> None:
        self.pinned = cpus
        self.log.append((self.side, f"pin {cpus}"))

    def unpin(self) -> None:
        self.pinned = None

    def cpus(self):
        return self.pinned

    def end(self) -> Finished:
        if self.running:
            self.running, self.killed, self.exit_status = False, True, -9
        return Finished(self.exit_status, self.pytest_log, 1.0)


@dataclass
class FakeSide:
    """One side: a thread with a player, and what it does in each test (``behaviours``, by key; by default, all well).

    ``orders`` are all orders that it was given, ``skipped`` the reasons with which it was let go.
    """

    side: str
    keys: tuple[str, ...]
    tmp_path: Path
    log: list[tuple[str, ...]]
    behaviours: dict[str, Callable[["FakeSide", str], None]] = field(default_factory=dict)
    step_ns: int = LONG_STEP_NS
    begun_ns: int | None = None
    threads: int = 1
    cold_start_only: bool = False
    limit_s: float = 20.0
    orders: list[tuple[str, Order]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    exit_status: int = 0
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.living = FakeLiving(self.side, self.log, self.tmp_path)
        self.line = Line(self.side, self.tmp_path)
        self.seat = Seat(self.side, self.line, self.living, self.limit_s)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self, monkeypatch) -> "FakeSide":
        for name, value in self.line.variables().items():
            monkeypatch.setenv(name, value)
        self.player = Player.from_environment()
        self.thread.start()
        return self

    def say(self, said) -> None:
        self.player.say(said)

    def found(self) -> Collected:
        return Collected(tests=tuple(FoundTest(key=key, node_id=f"node of {key}") for key in self.keys))

    def _run(self) -> None:
        try:
            self.say(Hello(side=self.side, process_id=1))
            self.say(self.found())
            selected = self.player.hear()
            assert isinstance(selected, Selected)
            for key in selected.keys:
                self.behaviours.get(key, measured)(self, key)
        except BatonLostError as error:
            self.error = error
        except BaseException as error:
            self.error = error
        finally:
            if self.living.running:
                self.living.exit_status = self.exit_status
                self.living.running = False
            self.player.close()

    def arrive(self, key: str) -> None:
        self.say(Arrived(key=key, threads=self.threads, cold_start_only=self.cold_start_only))

    def obey(self, key: str, most: int | None = None) -> Order | None:
        """Do what is ordered, as long as there is something to answer, or ``most`` times; return the last order."""
        answered = 0
        while True:
            order = self.player.hear()
            self.orders.append((key, order))
            self.log.append((self.side, type(order).__name__))
            assert not self.living.stopped, "a stopped process can do nothing"
            if isinstance(order, Finish | Release):
                return order
            if answered == most:
                return order
            self.answer(order)
            answered += 1

    def answer(self, order: Order) -> None:
        if isinstance(order, Prepare):
            said = prepared(self.step_ns, self.threads)
        elif isinstance(order, Begin):
            warmup_ns = (self.begun_ns or self.step_ns,) * order.warmup_steps
            said = Begun(restore_ns=1, iterator_ns=None, warmup_ns=warmup_ns, moved_bytes=64)
        else:
            assert isinstance(order, Visit)
            said = Visited(started_at_unix_ns=1, samples_ns=(self.step_ns,) * order.samples, read_ns=())
        self.log.append((self.side, "answer"))
        self.say(said)


def measured(side: FakeSide, key: str) -> None:
    """What a test does when all goes well, or when it is let go."""
    side.arrive(key)
    last = side.obey(key)
    if isinstance(last, Release):
        side.skipped[key] = last.why
        side.say(Ended(key=key, outcome="skipped", why=f"stepprof ab: {last.why}"))
    else:
        side.say(Ended(key=key, outcome="passed"))


def ends(outcome, why=None):
    """A test that ends without ever calling stepprof."""
    return lambda side, key: side.say(Ended(key=key, outcome=outcome, why=why))


def fails_after(orders, why="ValueError: no"):
    """A test whose step fails when this many orders were answered."""

    def behave(side: FakeSide, key: str) -> None:
        side.arrive(key)
        side.obey(key, most=orders)
        side.say(Ended(key=key, outcome="failed", why=why))

    return behave


def fails_late(side: FakeSide, key: str) -> None:
    """A test that is measured and then fails."""
    side.arrive(key)
    side.obey(key)
    side.say(Ended(key=key, outcome="failed", why="AssertionError: late"))


def says_nothing_after(orders):
    """A test whose step hangs."""

    def behave(side: FakeSide, key: str) -> None:
        side.arrive(key)
        side.obey(key, most=orders)
        while side.living.running:
            threading.Event().wait(0.01)
        raise SystemExit

    return behave


def dies_after(orders, exit_status=-11):
    """A test that takes its process with it."""

    def behave(side: FakeSide, key: str) -> None:
        side.arrive(key)
        side.obey(key, most=orders)
        side.exit_status = exit_status
        raise SystemExit

    return behave


def answers(said, orders=1):
    """A test whose process answers with this at some time."""

    def behave(side: FakeSide, key: str) -> None:
        side.arrive(key)
        side.obey(key, most=orders)
        side.say(said)
        side.player.hear()

    return behave
