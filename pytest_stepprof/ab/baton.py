"""The baton between the conductor and the two processes that take turns: messages over a local socket, with a key.

What is said is in :mod:`pytest_stepprof.record.turns`; it travels as JSON and is checked against these records when it
is read. Nothing is pickled. A process gets the address and the key in one environment variable, which it takes out of
its environment at once, so that its own children do not find it.
"""

import contextlib
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Self

import msgspec

from pytest_stepprof.errors import StepprofError
from pytest_stepprof.record.turns import FromConductor, Said, SideName

VARIABLE = "STEPPROF_AB_BATON"
"""Holds, as JSON, the ``address`` to connect to, the ``key`` (hexadecimal) and which ``side`` the process is."""

_KEY_BYTES = 32
_LONGEST_SOCKET_PATH_BYTES = 90  # systems allow from 92 to 108
_LOOPBACK = "127.0.0.1"
_LOOK_S = 0.25  # how often a silent process is looked at: a forked child may hold its socket open after its death

_FROM_CONDUCTOR = msgspec.json.Decoder(FromConductor)
_SAID: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)


class BatonLostError(StepprofError):
    """The other end is gone, or was never there."""


class BatonSilentError(StepprofError):
    """The other end is there and says nothing in the time that it had."""


class BatonMessageError(StepprofError):
    """What the other end says is not a message that can be said here."""


class _Invitation(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    key: str
    side: SideName


class Player:
    """A side's end: it says what happened and hears what to do."""

    def __init__(self, connection: Connection, side: SideName) -> None:
        self.side = side
        self._connection = connection

    @classmethod
    def from_environment(cls) -> Self | None:
        """Connect to the conductor that started this process, and take its variable out of the environment.

        Returns ``None`` where no conductor did.

        Raises:
            BatonLostError: nobody listens at the address any more, or the key is not the conductor's.
        """
        text = os.environ.pop(VARIABLE, None)
        if text is None:
            return None
        invitation = msgspec.json.decode(text, type=_Invitation)
        try:
            connection = Client(_address(invitation.address), authkey=bytes.fromhex(invitation.key))
        except (OSError, EOFError, AuthenticationError) as error:
            raise BatonLostError(f"`stepprof ab` does not listen to this process: {error}.") from error
        return cls(connection, invitation.side)

    def say(self, said: Said) -> None:
        """Tell the conductor something.

        Raises:
            BatonLostError: the conductor is gone.
        """
        try:
            self._connection.send_bytes(msgspec.json.encode(said))
        except OSError as error:
            raise _lost(error) from error

    def hear(self) -> FromConductor:
        """Wait, without using a core, for what the conductor says next.

        Raises:
            BatonLostError: the conductor is gone, or what it says cannot be understood.
        """
        try:
            return _FROM_CONDUCTOR.decode(self._connection.recv_bytes())
        except (OSError, EOFError) as error:
            raise _lost(error) from error
        except msgspec.DecodeError as error:
            raise BatonLostError(f"`stepprof ab` said what this version does not understand: {error}.") from error

    def close(self) -> None:
        """Let go of the conductor; it sees that this side is over."""
        self._connection.close()


class Line:
    """The conductor's end of the line to one process, which is yet to be started and connects by itself.

    It listens at a socket in ``folder`` (private to this user), or at the loopback interface where that path is too
    long for a socket or the system has no such sockets.
    """

    def __init__(self, side: SideName, folder: Path) -> None:
        self.side = side
        self._key = secrets.token_bytes(_KEY_BYTES)
        self._listener = _listener(folder / side, self._key)
        self._connection: Connection | None = None
        self._closed = False
        self._arrived = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def variables(self) -> Mapping[str, str]:
        """Return what the process needs in its environment."""
        address = self._listener.address
        text = address if isinstance(address, str) else f"{address[0]}:{address[1]}"
        invitation = _Invitation(address=text, key=self._key.hex(), side=self.side)
        return {VARIABLE: msgspec.json.encode(invitation).decode()}

    def say(self, order: FromConductor) -> None:
        """Give an order.

        Raises:
            BatonLostError: the process is gone, or has not connected yet.
        """
        if self._connection is None:
            raise BatonLostError(f"{self.side} has not said anything yet.")
        try:
            self._connection.send_bytes(msgspec.json.encode(order))
        except OSError as error:
            raise BatonLostError(f"{self.side} is gone: {error}.") from error

    def hear(self, limit_s: float, alive: Callable[[], bool]) -> Said:
        """Wait for what the process says next, ``limit_s`` seconds at most. ``alive`` tells whether it still runs.

        Raises:
            BatonLostError: the process is gone.
            BatonSilentError: it said nothing within the limit.
            BatonMessageError: it said something that is no message.
        """
        until_s = time.monotonic() + limit_s
        while not self._has_something(min(_LOOK_S, max(0.0, until_s - time.monotonic()))):
            if not alive() and not self._has_something(0.0):
                raise BatonLostError(f"{self.side} is gone.")
            if time.monotonic() >= until_s:
                raise BatonSilentError(f"{self.side} said nothing for {limit_s:g} s.")
        return self._read()

    def close(self) -> None:
        """Let go of the process, which then ends by itself, and remove the socket."""
        if self._closed:
            return
        self._closed = True
        self._wake()
        self._listener.close()
        self._thread.join(timeout=1.0)
        if self._connection is not None:
            self._connection.close()

    def _read(self) -> Said:
        assert self._connection is not None, "only a connected process has something"
        try:
            return _SAID.decode(self._connection.recv_bytes())
        except (OSError, EOFError) as error:
            raise BatonLostError(f"{self.side} is gone.") from error
        except msgspec.DecodeError as error:
            raise BatonMessageError(f"{self.side} said something that is no message: {error}.") from error

    def _has_something(self, limit_s: float) -> bool:
        if self._connection is None:
            self._arrived.wait(limit_s)
            return False
        try:
            return self._connection.poll(limit_s)
        except OSError:
            return True  # reading it tells how it was lost

    def _accept(self) -> None:
        """Wait for the one process that has the key; strangers are sent away."""
        while self._connection is None and not self._closed:
            with contextlib.suppress(OSError, EOFError, AuthenticationError):
                self._connection = self._listener.accept()
        self._arrived.set()

    def _wake(self) -> None:
        """End the waiting for a process that never came: a listening socket hears only of those who connect."""
        if self._connection is None:
            with contextlib.suppress(OSError, EOFError):
                Client(self._listener.address).close()  # without the key, and without waiting for an answer


def _listener(path: Path, key: bytes) -> Listener:
    if sys.platform == "win32":
        return Listener(family="AF_PIPE", authkey=key)
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH_BYTES:
        with contextlib.suppress(OSError):
            return Listener(str(path), family="AF_UNIX", authkey=key)
    return Listener((_LOOPBACK, 0), family="AF_INET", authkey=key)


def _address(text: str) -> str | tuple[str, int]:
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host == _LOOPBACK else text


def _lost(error: Exception) -> BatonLostError:
    return BatonLostError(f"`stepprof ab` is gone ({str(error) or type(error).__name__}): this process ends, too.")
