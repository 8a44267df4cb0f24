"""``stepprof trace show``."""

import gzip
import io
import json
from pathlib import Path

import msgspec
import pytest
from trace_events import DATA, SHARED_TRACES

from pytest_stepprof.cli.main import main
from pytest_stepprof.record.window import Window


def span(category, name, start_us, duration_us):
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start_us,
        "dur": duration_us,
        "args": {},
    }


EVENTS = [
    span("user_annotation", "ProfilerStep#3", 1000, 1000),
    span("user_annotation", "forward|pass", 1100, 500),
    span("cpu_op", "aten::mm", 1200, 250),
]
WITHOUT_STEPS = [
    span("user_annotation", "train", 1000, 100),
    span("cpu_op", "aten::mm", 1010, 50),
    span("user_annotation", "other", 1150, 10),
    span("user_annotation", "train", 1200, 100),
    span("cpu_op", "aten::mm", 1210, 50),
]


def written(path, events):
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.fixture
def trace(tmp_path):
    return written(tmp_path / "trace.json", EVENTS)


@pytest.fixture
def without_steps(tmp_path):
    return written(tmp_path / "trace.json", WITHOUT_STEPS)


def shown(capsys, *arguments):
    code = main(["trace", "show", *map(str, arguments)])
    return code, *capsys.readouterr()


def as_json(capsys, *arguments):
    code, out, err = shown(capsys, "--json", *arguments)
    assert (code, err) == (0, "")
    return json.loads(out)


def test_shares_of_regions_and_operators(trace, capsys):
    code, out, err = shown(capsys, trace)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["trace", "trace.json"]
    assert ["forward|pass", "1", "50.0", "%", "25.0", "%"] in rows
    assert ["aten::mm", "1", "25.0", "%", "25.0", "%"] in rows
    assert "device: not observed (the file holds neither device events nor launches)" in out


def test_counters_need_verbosity(trace, capsys):
    assert "operator calls" not in shown(capsys, trace)[1]
    assert "operator calls" in shown(capsys, trace, "-v")[1]


def test_markdown(trace, capsys):
    assert "| `forward\\|pass` | 1 | 50.0 % | 25.0 % |" in shown(capsys, trace, "--markdown")[1]


def test_json_is_the_window_as_it_is_stored(trace, capsys):
    content = as_json(capsys, trace)
    assert content.keys() == {"trace", "window", "notices"}
    assert content["trace"] == "trace.json"
    window = msgspec.convert(content["window"], Window)
    assert (window.steps, window.elapsed_ns) == ((3,), (1_000_000,))
    assert window.operators[0].self_cpu_ns == 250_000


def test_json_and_markdown_exclude_each_other(trace, capsys):
    with pytest.raises(SystemExit) as left:
        main(["trace", "show", str(trace), "--json", "--markdown"])
    assert left.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_gzip(trace, capsys, tmp_path):
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    assert shown(capsys, packed)[1].splitlines()[1:] == shown(capsys, trace)[1].splitlines()[1:]


def test_standard_input(trace, capsys, monkeypatch):
    for data in (trace.read_bytes(), gzip.compress(trace.read_bytes())):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        code, out, _ = shown(capsys, "-")
        assert code == 0
        assert out.splitlines()[0] == "trace standard input"
        assert out.splitlines()[1:] == shown(capsys, trace)[1].splitlines()[1:]


def test_a_trace_without_steps_is_one_window_and_says_so(without_steps, capsys):
    code, out, _ = shown(capsys, without_steps)
    said = " ".join(out.split())
    assert code == 0
    assert "shown as one window from the first event to the last (the trace holds no ProfilerStep)" in said
    assert "train (2), other (1)" in said
    window = as_json(capsys, without_steps)["window"]
    assert (window["whole_trace"], window["elapsed_ns"]) == (True, [300_000])


def test_a_label_that_comes_back_can_be_the_step(without_steps, capsys):
    content = as_json(capsys, without_steps, "--step-label", "train")
    assert content["window"]["whole_trace"] is False
    assert content["window"]["elapsed_ns"] == [100_000, 100_000]
    assert content["window"]["operators"][0]["calls"] == [1, 1]
    assert "one window" not in shown(capsys, without_steps, "--step-label", "train")[1]


def test_a_label_that_is_not_there_lists_those_that_are(without_steps, capsys):
    code, out, err = shown(capsys, without_steps, "--step-label", "step")
    assert (code, out) == (2, "")
    assert str(without_steps) in err
    assert "found no label 'step'" in err
    assert "train (2), other (1)" in err


def test_the_whole_trace_on_request(trace, capsys):
    assert "by request" in shown(capsys, trace, "--whole")[1]
    assert as_json(capsys, trace, "--whole")["window"]["whole_trace"] is True


def test_notices_stand_above_the_numbers(tmp_path, capsys):
    dropped = span("kernel", "k", 1000, 8 * 86_400 * 10**6)
    file = written(tmp_path / "trace.json", [*EVENTS, span("kernel", "k", 1300, 5), dropped])
    notices = as_json(capsys, file)["notices"]
    assert notices
    out = " ".join(shown(capsys, file)[1].split())
    assert out.index(" ".join(notices[0]["message"].split())[:60]) < out.index("25.0 %")


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_above_the_limit_is_refused(trace, tmp_path, packed, capsys):
    file = tmp_path / "large.json"
    content = trace.read_bytes() + b" " * 10_000
    file.write_bytes(gzip.compress(content) if packed else content)
    code, out, err = shown(capsys, file, "--limit", "1kB")
    assert (code, out) == (2, "")
    assert str(file) in err
    assert "more than 1000 bytes" in err
    assert "limit" in err
    assert shown(capsys, file, "--limit", "20kB")[0] == 0


@pytest.mark.parametrize("text", ["-1", "0", "much", "1XB"])
def test_a_limit_that_is_no_size(trace, text, capsys):
    with pytest.raises(SystemExit) as left:
        main(["trace", "show", str(trace), f"--limit={text}"])
    assert left.value.code == 2
    assert "expected a size above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "trace.json"), ("[]", "trace.json"), ('{"traceEvents": []}', "no events"), ("", "empty")],
)
def test_a_file_that_is_no_trace_is_named(tmp_path, capsys, content, said):
    file = tmp_path / "trace.json"
    file.write_text(content)
    code, out, err = shown(capsys, file)
    assert (code, out) == (2, "")
    assert str(file) in err
    assert said in err


@pytest.mark.parametrize(("name", "said"), [("none.json", "No such file"), (".", "Is a directory")])
def test_what_cannot_be_read(tmp_path, capsys, name, said):
    code, _, err = shown(capsys, tmp_path / name)
    assert code == 2
    assert "cannot read" in err
    assert said in err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cpu_only_step_no_gpu.json.gz", "device: not observed"),
        ("nvidia_h100_infer_bert_small.json.gz", "device: observed, work 0."),
        ("launches_but_no_gpu_events.json.gz", "device: not observed"),
        ("nvidia_v100_train_resnet50_workers0.pt.trace.json.gz", "enumerate(DataLoader)"),
    ],
)
def test_real_traces(name, said, capsys):
    file = next((folder / name for folder in (DATA, SHARED_TRACES) if (folder / name).exists()), None)
    if file is None:
        pytest.skip(f"{name} is not beside this checkout")
    code, out, err = shown(capsys, file)
    assert (code, err) == (0, "")
    assert said in out


@pytest.mark.parametrize("name", ["truncated.json", "truncated_gzip.json.gz", "torch213_quote_in_label_invalid.json"])
def test_damaged_traces(name, capsys):
    file: Path = next((folder / name for folder in (DATA, SHARED_TRACES) if (folder / name).exists()), DATA / name)
    if not file.exists():
        pytest.skip(f"{name} is not beside this checkout")
    code, out, err = shown(capsys, file)
    assert (code, out) == (2, "")
    assert name in err


def test_help_says_what_json_holds(capsys):
    with pytest.raises(SystemExit) as left:
        main(["trace", "show", "--help"])
    assert left.value.code == 0
    assert '{"trace": NAME, "window": {...}, "notices": [...]}' in " ".join(capsys.readouterr().out.split())
