"""The line between the conductor and a process: a socket, a key, and messages that are checked when they are read."""

import contextlib
import json
import os
import subprocess
import sys
from multiprocessing.connection import Client

import pytest

from pytest_stepprof.ab import baton
from pytest_stepprof.ab.baton import (
    VARIABLE,
    BatonLostError,
    BatonMessageError,
    BatonSilentError,
    Line,
    Player,
)
from pytest_stepprof.record.turns import Begin, Ended, Hello, Selected

LONG_S = 20.0


def always():
    return True


@pytest.fixture(params=["in a folder", "where the path is too long"])
def line(request, tmp_path):
    folder = tmp_path if request.param == "in a folder" else tmp_path / ("x" * 100)
    folder.mkdir(exist_ok=True)
    line = Line("head", folder)
    yield line
    line.close()


@pytest.fixture
def player(line, monkeypatch):
    for name, value in line.variables().items():
        monkeypatch.setenv(name, value)
    player = Player.from_environment()
    yield player
    player.close()


def test_both_ends_say_and_hear_in_order(line, player):
    said = [Hello(side="head", process_id=7), Ended(key="a", outcome="failed", why="ValueError: no")]
    for message in said:
        player.say(message)
    assert [line.hear(LONG_S, always) for _ in said] == said
    orders = [Selected(keys=("a", "b")), Begin(pad_bytes=64, warmup_steps=2)]
    for order in orders:
        line.say(order)
    assert [player.hear() for _ in orders] == orders
    assert player.side == "head"


def test_the_invitation_is_taken_out_of_the_environment(player):
    assert VARIABLE not in os.environ
    assert Player.from_environment() is None


def test_a_line_over_the_loopback_is_only_for_too_long_paths(line, request):
    address = json.loads(line.variables()[VARIABLE])["address"]
    long = "too long" in request.node.name
    assert address.startswith("127.0.0.1:") == long
    assert address.endswith("/head") != long


def test_every_line_has_its_own_key(tmp_path):
    keys = set()
    for side in ("base", "head"):
        line = Line(side, tmp_path)
        keys.add(json.loads(line.variables()[VARIABLE])["key"])
        line.close()
    assert {len(key) for key in keys} == {64}
    assert len(keys) == 2


def test_a_stranger_is_sent_away_and_the_owner_of_the_key_still_gets_in(line, monkeypatch):
    invitation = json.loads(line.variables()[VARIABLE])
    monkeypatch.setenv(VARIABLE, json.dumps(invitation | {"key": "00" * 32}))
    with pytest.raises(BatonLostError, match="does not listen to this process"):
        Player.from_environment()
    monkeypatch.setenv(VARIABLE, json.dumps(invitation))
    player = Player.from_environment()
    player.say(Hello(side="head", process_id=1))
    assert line.hear(LONG_S, always) == Hello(side="head", process_id=1)
    player.close()


def test_a_player_without_a_conductor(tmp_path, monkeypatch):
    line = Line("base", tmp_path)
    monkeypatch.setenv(VARIABLE, line.variables()[VARIABLE])
    line.close()
    with pytest.raises(BatonLostError, match="does not listen"):
        Player.from_environment()


def test_when_the_conductor_goes_the_player_hears_of_it(line, player):
    player.say(Hello(side="head", process_id=1))
    line.hear(LONG_S, always)
    line.close()
    with pytest.raises(BatonLostError, match=r"`stepprof ab` is gone \(\w"):  # what end of a file has no words for
        player.hear()
    with contextlib.suppress(BatonLostError):  # a first message may still fit into the socket
        player.say(Hello(side="head", process_id=1))
    with pytest.raises(BatonLostError, match="`stepprof ab` is gone"):
        player.say(Hello(side="head", process_id=1))


def test_when_the_player_goes_the_conductor_hears_what_was_said_and_then_of_it(line, player):
    player.say(Ended(key="a", outcome="passed"))
    player.close()
    assert line.hear(LONG_S, always) == Ended(key="a", outcome="passed")
    with pytest.raises(BatonLostError, match="head is gone"):
        line.hear(LONG_S, always)


def test_silence_is_told_apart_from_death(line, player):
    player.say(Ended(key="a", outcome="passed"))
    line.hear(LONG_S, always)
    with pytest.raises(BatonSilentError, match=r"head said nothing for 0\.05 s"):
        line.hear(0.05, always)
    with pytest.raises(BatonLostError, match="head is gone"):
        line.hear(LONG_S, lambda: False)


def test_a_process_that_never_connects(line):
    with pytest.raises(BatonSilentError):
        line.hear(0.05, always)
    with pytest.raises(BatonLostError):
        line.hear(LONG_S, lambda: False)
    with pytest.raises(BatonLostError, match="has not said anything yet"):
        line.say(Selected(keys=()))


@pytest.mark.parametrize("text", [b"", b"{", b'{"type":"Nobody"}', b'{"type":"Hello","side":"left","process_id":1}'])
def test_what_is_no_message_is_an_error(line, player, text):
    player._connection.send_bytes(text)
    with pytest.raises(BatonMessageError, match="no message"):
        line.hear(LONG_S, always)


def test_orders_that_are_none_end_the_player(line, player):
    player.say(Hello(side="head", process_id=1))
    line.hear(LONG_S, always)
    line._connection.send_bytes(b'{"type":"Ended","key":"a","outcome":"passed"}')
    with pytest.raises(BatonLostError, match="does not understand"):
        player.hear()


def test_closing_leaves_no_socket_and_may_be_repeated(tmp_path):
    line = Line("base", tmp_path)
    assert (tmp_path / "base").is_socket()
    line.close()
    line.close()
    assert not (tmp_path / "base").exists()
    assert not line._thread.is_alive()


def test_a_pickled_object_is_not_loaded(line, player, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "exploded"),))

    player._connection.send(Bomb())
    with pytest.raises(BatonMessageError):
        line.hear(LONG_S, always)
    assert not (tmp_path / "exploded").exists()


def test_a_connection_that_says_nothing_does_not_block_the_end(tmp_path):
    """The handshake of a stranger who stays silent holds the listening thread, and nothing else."""
    line = Line("base", tmp_path)
    stranger = Client(line._listener.address)
    line.close()
    stranger.close()


def test_the_side_of_the_test_process_imports_nothing_heavy():
    program = f"import sys, {baton.__name__}; print(sorted({{'torch', 'numpy', 'scipy', 'pytest'}} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
