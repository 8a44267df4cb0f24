"""One side at the conductor's table: what it says, where in its tests it is, and what became of it."""

import contextlib
from collections.abc import Callable
from typing import Protocol, TypeVar

from pytest_stepprof.ab.baton import BatonLostError, BatonMessageError, BatonSilentError
from pytest_stepprof.ab.cores import Cpus
from pytest_stepprof.ab.process import Finished
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.errors import StepprofError
from pytest_stepprof.record.lockstep import Breakage
from pytest_stepprof.record.turns import (
    Arrived,
    Begin,
    Begun,
    Collected,
    Ended,
    Finish,
    FromConductor,
    Hello,
    Order,
    Prepare,
    Prepared,
    Release,
    Said,
    Selected,
    SideName,
    Visit,
    Visited,
)

_ORDERLY = (0, 1, 5)  # pytest's exit codes when tests passed, when some failed, when there were none
_GRACE_S = 5.0  # for a process that has closed its end of the line to end by itself
_OUT_OF_MEMORY = ("out of memory", "outofmemory", "can't allocate memory", "cannot allocate memory", "signal 9")
_Answer = TypeVar("_Answer", Prepared, Begun, Visited)


class Speaking(Protocol):
    """The line to a process."""

    def say(self, order: FromConductor) -> None:
        """Give an order."""

    def hear(self, limit_s: float, alive: Callable[[], bool]) -> Said:
        """Wait for what the process says next."""

    def close(self) -> None:
        """Let go of the process."""


class Living(Protocol):
    """A process that can be held while the other side has its turn."""

    def alive(self) -> bool:
        """Whether it still runs."""

    def wait(self, limit_s: float) -> bool:
        """Wait for its end; whether it came."""

    def stop(self) -> None:
        """Stop it and its children."""

    def go_on(self) -> None:
        """Continue them."""

    def look(self) -> None:
        """Look for new children."""

    def stops_wholly(self) -> bool:
        """Whether ``stop`` stops all of it, as far as the last look tells."""

    def pin(self, cpus: Cpus) -> None:
        """Let all threads run on these cores only."""

    def unpin(self) -> None:
        """Let them run where they could before."""

    def cpus(self) -> Cpus | None:
        """Read where they may run."""

    def end(self) -> Finished:
        """End it, unless it has ended by itself, with its children; return how it ended."""


class TestOverError(StepprofError):
    """A side cannot go on with a test. ``side`` has the problem, ``None`` when this test has no part in it.

    ``outcome`` is how it came to that.
    """

    __test__ = False

    def __init__(self, why: str, side: SideName | None, outcome: Breakage) -> None:
        super().__init__(why)
        self.why = why
        self.side = side
        self.outcome = outcome


class Seat:
    """One side. It is asked one thing at a time; whatever else it says in between is noted.

    ``gone`` says why the process is no longer there, and ``fault`` does so where it is to blame for that, ``gone_how``
    in one word. ``finished`` is how it ended by itself; ``ended`` how each test ended; ``node_ids`` what was collected.
    """

    def __init__(self, side: SideName, line: Speaking, living: Living, limit_s: float) -> None:
        self.side: SideName = side
        self.living = living
        self.gone: str | None = None
        self.gone_how: Breakage = "process"
        self.fault: str | None = None
        self.finished: Finished | None = None
        self.ended: dict[str, Ended] = {}
        self.node_ids: dict[str, str] = {}
        self._line = line
        self._limit_s = limit_s
        self._to_come: list[str] = []
        self._arrived: Arrived | None = None
        self._released: dict[str, str] = {}

    def welcome(self) -> None:
        """Wait until the side has connected and collected its tests.

        Raises:
            TestOverError: it never does.
        """
        hello = self._hear()
        collected = self._hear() if isinstance(hello, Hello) and hello.side == self.side else hello
        if not isinstance(collected, Collected):
            raise self._over(f"said {type(collected).__name__} before it had collected its tests")
        self.node_ids = {found.key: found.node_id for found in collected.tests}

    def select(self, keys: tuple[str, ...]) -> None:
        """Tell the side which tests to run, in which order."""
        self._to_come = list(keys)
        with contextlib.suppress(TestOverError):
            self._say(Selected(keys=keys))

    def arrive_at(self, key: str) -> Arrived:
        """Wait until the side is at this test and waits for orders; tests must be asked for in their order.

        Raises:
            TestOverError: it never gets there.
        """
        self._to_come = self._to_come[self._to_come.index(key) + 1 :] if key in self._to_come else self._to_come
        self._check_gone()
        while self._arrived is None or self._arrived.key != key:
            if key in self.ended:
                raise self._told_by(self.ended[key])
            if self._arrived is not None:
                why = f"{self.side} went on to {self._arrived.key} without it"
                raise TestOverError(why, self.side, "not measured")
            self._move_on()
        return self._arrived

    def ask(self, order: Order, kind: type[_Answer]) -> _Answer:
        """Let the side work until it has answered, then stop it.

        Raises:
            TestOverError: the test ended instead, or the process did.
        """
        self._check_gone()
        self.living.go_on()
        self._say(order)
        said = self._hear(at_work=True)
        if isinstance(said, Ended):
            self._note(said)
            raise self._told_by(said)
        if not isinstance(said, kind):
            raise self._over(f"answered {type(order).__name__} with {type(said).__name__}")
        self.living.stop()
        return said

    def prepare(self) -> Prepared:
        """Let it take the first step and warm up."""
        return self.ask(Prepare(), Prepared)

    def begin(self, order: Begin) -> Begun:
        """Let it begin a set of fresh tensors; its workers may be new."""
        begun = self.ask(order, Begun)
        self.living.look()
        return begun

    def visit(self, order: Visit) -> Visited:
        """Let it take samples, as many as were ordered."""
        visited = self.ask(order, Visited)
        if len(visited.samples_ns) != order.samples:
            raise self._over(f"answered with {len(visited.samples_ns)} samples where {order.samples} were ordered")
        return visited

    def finish(self) -> None:
        """Let the test go on to its end, wherever it likes."""
        if self._arrived is not None:
            self._released[self._arrived.key] = "it was measured in this round already"
        self._arrived = None
        self._set_free(Finish())

    def release(self, key: str, why: str) -> None:
        """Let the side skip this test, now or when it gets there."""
        self._released[key] = why
        if self._arrived is not None and self._arrived.key == key:
            self._arrived = None
            self._set_free(Release(why=why))
        else:
            self._set_free(None)

    def see_out(self) -> None:
        """Wait for the end of the process, and of what is left of its tests."""
        self._to_come = []
        try:
            if self._arrived is not None:
                self._release_as_known(self._arrived)
            while self.gone is None:
                self._move_on(ends_well=True)
        except TestOverError:
            pass
        finally:
            self.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        self.gone = self.gone or f"{self.side}'s process was ended"
        self.living.end()
        self._line.close()

    def _move_on(self, *, ends_well: bool = False) -> None:
        """Hear one more thing on the way to a test."""
        said = self._hear(ends_well=ends_well)
        if isinstance(said, Ended):
            self._note(said)
        elif not isinstance(said, Arrived):
            raise self._over(f"said {type(said).__name__}, which nobody had asked for")
        elif said.key in self._released:
            self._release_as_known(said)
        else:
            self._arrived = said

    def _release_as_known(self, arrived: Arrived) -> None:
        self._arrived = None
        self._say(Release(why=self._released.get(arrived.key, "the other side is not there any more")))

    def _note(self, ended: Ended) -> None:
        """Keep the first way in which a test ended: another try of a plugin that repeats tests is not measured."""
        self.ended.setdefault(ended.key, ended)
        self._released.setdefault(ended.key, "it has ended in this round already")
        if self._arrived is not None and self._arrived.key == ended.key:
            self._arrived = None

    def _told_by(self, ended: Ended) -> TestOverError:
        if ended.outcome == "passed":
            why = f"{self.side} passed it without a call of stepprof(...)"
            return TestOverError(why, self.side, "not measured")
        why = f"{self.side} {ended.outcome} it: {printable(ended.why or '?')}"
        return TestOverError(with_remedy(why), self.side, _how(why, ended.outcome))

    def _set_free(self, order: Order | None) -> None:
        self.living.unpin()
        self.living.go_on()
        if order is not None:
            with contextlib.suppress(TestOverError):  # whether it is still there is told when the next test comes
                self._say(order)

    def _say(self, order: FromConductor) -> None:
        self._check_gone()
        try:
            self._line.say(order)
        except BatonLostError as error:
            raise self._died() from error

    def _hear(self, *, ends_well: bool = False, at_work: bool = False) -> Said:
        self._check_gone()
        try:
            return self._line.hear(self._limit_s, self.living.alive)
        except BatonLostError as error:
            raise self._died(ends_well=ends_well, at_work=at_work) from error
        except BatonSilentError as error:
            raise self._over(f"did nothing for {self._limit_s:g} s (--timeout gives more)") from error
        except BatonMessageError as error:
            raise self._over(f"said something that is no message ({error})") from error

    def _check_gone(self) -> None:
        if self.gone is not None:
            raise TestOverError(self.gone, None, self.gone_how)

    def _over(self, what: str) -> TestOverError:
        self.living.end()
        self.gone = self.fault = f"{self.side}'s process was ended because it {what}"
        return TestOverError(self.gone, self.side, self.gone_how)

    def _died(self, *, ends_well: bool = False, at_work: bool = False) -> TestOverError:
        """Look how the process ended that says nothing any more.

        One that ended as pytest does is nobody's fault, unless it was at work on an order: then the step ended it.
        """
        self.living.go_on()
        if not self.living.wait(self._limit_s if ends_well else _GRACE_S):
            return self._over("had let go of the conductor and did not end")
        self.finished = self.living.end()
        why = f"{self.side}'s process ended ({self.finished.in_words()})"
        self.gone, self.gone_how = with_remedy(why), _how(why, "process")
        if self.finished.exit_status in _ORDERLY and not at_work:
            return TestOverError(self.gone, None, self.gone_how)
        self.fault = self.gone
        return TestOverError(self.gone, self.side, self.gone_how)


def ran_out_of_memory(why: str) -> bool:
    """Whether these words, a side's or the system's, may mean that there was too little memory."""
    return any(sign in why.lower() for sign in _OUT_OF_MEMORY)


def _how(why: str, otherwise: Breakage) -> Breakage:
    return "memory" if ran_out_of_memory(why) else otherwise


def with_remedy(why: str) -> str:
    """Add, where memory ran out, what may help: two sides that are alive together need twice of it."""
    if not ran_out_of_memory(why):
        return why
    return (
        f"{why}. Both sides are in memory together here, which may be too much: with --whole-processes, one runs after "
        "the other"
    )
