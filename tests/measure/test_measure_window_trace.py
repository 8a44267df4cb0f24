import gzip
import inspect
import json
import os
import secrets
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import window_steps
from torch.profiler import ProfilerActivity, profile, record_function
from window_steps import InStep, Step, assert_good_window, nothing, request_of, taken, work

from pytest_stepprof.analysis.privacy.inspection import inspect_trace
from pytest_stepprof.analysis.privacy.revealed import KEPT_BY_SCRUB
from pytest_stepprof.errors import DeviceError, ProfilerError, StoreError
from pytest_stepprof.measure.profiler_messages import ProfilerMessages, without_paths
from pytest_stepprof.measure.trace_keeping import keep_trace
from pytest_stepprof.measure.window import TakenWindow, take_window

few_objects = window_steps.few_objects
nothing_left_behind = window_steps.nothing_left_behind


# Activities


@pytest.mark.parametrize(("kind", "activity"), [("cuda", "CUDA"), ("xpu", "XPU")])
def test_device_activity_that_torch_cannot_record(kind: str, activity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {ProfilerActivity.CPU})
    with pytest.raises(DeviceError, match=f"cannot record {activity} activity"):
        take_window(lambda: pytest.fail("the step has run"), request_of(device_kind=kind), nothing)


def test_unknown_device() -> None:
    with pytest.raises(DeviceError, match="'tpu' is not known"):
        take_window(work, request_of(device_kind="tpu"), nothing)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_activity_asked_for_and_not_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {ProfilerActivity.CPU, ProfilerActivity.CUDA})
    with pytest.raises(ProfilerError, match="asked for CPU, CUDA activity and collected CPU"):
        take_window(work, request_of(device_kind="cuda"), nothing)
    assert_good_window()


def test_another_tool_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {ProfilerActivity.CPU, ProfilerActivity.CUDA})
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    with pytest.raises(ProfilerError, match="NSYS_PROFILING_SESSION_ID"):
        take_window(work, request_of(device_kind="cuda"), nothing)


def test_mps_is_not_observed_and_says_why() -> None:
    result = take_window(work, request_of(device_kind="mps"), nothing)
    assert result.window.device.status == "not observed"
    assert result.window.device.reason == "torch.profiler records no MPS activity"
    assert [notice.code for notice in result.notices] == ["device not observed"]


# The trace


def trace_of(result: TakenWindow) -> dict[str, Any]:
    assert result.trace is not None
    return json.loads(gzip.decompress(result.trace))


ODD_LABELS = ['quo"te', "größe", "line\nbreak", "back\\slash", "tab\tstop", "名前"]


@pytest.mark.skipif(
    "use_python_export" not in inspect.signature(torch.profiler.profile.export_chrome_trace).parameters,
    reason="this torch can only export with C++, which changes such labels",
)
@pytest.mark.parametrize("name", ODD_LABELS)
def test_odd_labels_are_found_and_kept(name: str) -> None:
    def step() -> None:
        with record_function(name):
            work()

    result = taken(step, name, keep_trace=True)
    kept = trace_of(result)
    assert [event["name"] for event in kept["traceEvents"] if event["name"] == name] == [name, name]
    stored = {region.name: region.calls for region in result.window.regions}
    assert stored[name.replace("\n", "\\x0a").replace("\t", "\\x09")] == (1, 1)


def test_the_kept_trace_is_scrubbed_and_readable(tmp_path: Path) -> None:
    result = taken(work, keep_trace=True)
    path = keep_trace(result.trace, tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == [path]
    assert path.read_bytes() == result.trace
    kept = trace_of(result)
    assert not {"traceName", "host_name", "trace_id"} & set(kept)
    assert "ProfilerStep#2" in {event["name"] for event in kept["traceEvents"]}
    assert "baseTimeNanoseconds" not in kept
    assert min(event["ts"] for event in kept["traceEvents"] if event["ph"] == "X") < 1
    assert {found.kind for found in inspect_trace(result.trace).revealed} <= {*KEPT_BY_SCRUB}


def test_the_kept_trace_tells_neither_paths_nor_arguments() -> None:
    result = taken(work, keep_trace=True, record_stacks=True, record_shapes=True)
    revealed = {found.kind for found in inspect_trace(result.trace).revealed}
    assert "source files and functions" in revealed
    assert revealed <= {*KEPT_BY_SCRUB}
    assert str(Path(__file__).parent) not in gzip.decompress(result.trace).decode()
    assert "Input Dims" in gzip.decompress(result.trace).decode()


def test_no_file_is_ever_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = iter(["first", "first", "second"])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(tokens))
    theirs = tmp_path / "window-first.json.gz"
    theirs.write_text("somebody else's")
    path = keep_trace(b"packed", tmp_path)
    assert theirs.read_text() == "somebody else's"
    assert path == tmp_path / "window-second.json.gz"
    assert path.read_bytes() == b"packed"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_link_in_the_way_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = iter(["a", "b"])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(tokens))
    (tmp_path / "window-a.json.gz").symlink_to(tmp_path / "nowhere")
    assert keep_trace(b"packed", tmp_path) == tmp_path / "window-b.json.gz"
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        keep_trace(b"packed", tmp_path / "file")


def test_temporary_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    taken()
    with pytest.raises(ProfilerError):
        taken(work, "no such label")
    assert list(tmp_path.iterdir()) == []


def export_nothing(self: object, path: str, use_python_export: bool = False) -> None:
    pass


def export_empty(self: object, path: str, use_python_export: bool = False) -> None:
    Path(path).touch()


def export_half(self: object, path: str, use_python_export: bool = False) -> None:
    Path(path).write_text('{"traceEvents": [{"ph": "X"')


def export_twice(self: object, path: str, use_python_export: bool = False) -> None:
    raise RuntimeError("Trace is already saved.")


@pytest.mark.parametrize(
    ("export", "says"),
    [
        (export_nothing, "exported no trace"),
        (export_empty, "exported no trace"),
        (export_half, "cannot be read. The trace is cut off"),
        (export_twice, "already saved"),
    ],
)
def test_an_export_that_fails_in_silence(export: Step, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "export_chrome_trace", export)
    with pytest.raises(ProfilerError, match=says):
        taken()


def export_too_much(self: object, path: str, use_python_export: bool = False) -> None:
    with Path(path).open("wb") as file:
        file.truncate(3 * 2**30)  # a hole: it takes no room


def test_a_trace_that_is_too_large_says_what_makes_it_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "export_chrome_trace", export_too_much)
    with pytest.raises(
        ProfilerError, match=r"takes 3\.00 GiB; expected at most 2\.00 GiB.*--stepprof-window-active-steps"
    ):
        taken()


def test_an_older_torch_without_the_python_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    def export(self: profile, path: str) -> None:
        assert self.profiler is not None
        self.profiler.export_chrome_trace(path)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(profile, "export_chrome_trace", export)
    assert_good_window()


# Standard error and warnings


def test_what_the_profiler_writes_is_kept_without_paths() -> None:
    def act() -> None:
        os.write(2, b"ERROR:2026-01-01 1:1 output_json.cpp:10] Failed to open /home/somebody/trace.json\n")
        os.write(2, b"USDT:2026-01-01 1:1 Handler.cpp:52] profiler_start\n")
        os.write(2, b"a line of the step's own\n")
        warnings.warn("CUPTI is out of sorts", stacklevel=1)

    result = taken(InStep(2, act))
    assert result.window.messages == (
        "ERROR:2026-01-01 1:1 output_json.cpp:10] Failed to open <path>",
        "CUPTI is out of sorts",
    )
    assert [notice.code for notice in result.notices] == ["profiler message"]


def test_what_others_write_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    def act() -> None:
        os.write(2, b"a line of the step's own\n")
        warnings.warn("a warning of the step's own", stacklevel=1)

    with pytest.warns(UserWarning, match="of the step's own"):
        taken(InStep(0, act))
    assert capfd.readouterr().err == "a line of the step's own\n"


def test_standard_error_comes_back_after_an_error() -> None:
    before = os.fstat(2)
    messages = ProfilerMessages()

    def interrupted() -> None:
        with messages:
            os.write(2, b"a line of CUPTI\n")
            assert not os.path.samestat(os.fstat(2), before)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.path.samestat(os.fstat(2), before)
    assert messages.lines == ("a line of CUPTI",)


def test_a_process_without_standard_error() -> None:
    code = (
        "import os; os.close(2)\n"
        "from pytest_stepprof.measure.profiler_messages import ProfilerMessages\n"
        "with ProfilerMessages() as messages: print('inside')\n"
        "print(messages.lines)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["inside", "()"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open /tmp/a/b.json failed", "open <path> failed"),
        ("open '~/a/b.json': no", "open '<path>': no"),
        ("C:\\Users\\me\\x.json", "<path>"),
        ("see torch/profiler/profiler.py:300", "see torch/profiler/profiler.py:300"),
        ("bell\x07", "bell\\x07"),
        ("x" * 900, "x" * 400),
    ],
)
def test_paths_are_taken_out(text: str, expected: str) -> None:
    assert without_paths(text) == expected
