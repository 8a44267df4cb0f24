"""Names on their way into a scrubbed trace: what is private goes, and what a name is taken for stays the same."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import complete, step, trace_bytes

from pytest_stepprof.analysis import window
from pytest_stepprof.analysis.privacy.fields import DEVICE_NAME, OWN_TEXT, is_number, is_numbers
from pytest_stepprof.analysis.privacy.inspection import inspect_trace
from pytest_stepprof.analysis.privacy.names import SafeNames
from pytest_stepprof.analysis.privacy.revealed import KEPT_BY_SCRUB
from pytest_stepprof.analysis.privacy.scrubbing import same_figures, scrub_trace
from pytest_stepprof.analysis.privacy.shapes import kinds_by_shape, masked
from pytest_stepprof.analysis.traces.reader import read_trace
from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.steps import find_steps
from pytest_stepprof.record.window import Window


def window_of(data: bytes) -> Window:
    trace = read_trace(data)
    return reduce_window(trace, device_expected=True, steps=find_steps(trace))


CATEGORIES = ["cpu_op", "Operator", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "overhead"]


def patterns_in(value: object) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from patterns_in(part)


def known_patterns() -> dict[str, re.Pattern[str]]:
    """Every pattern that the reducing of a window knows names by."""
    return {
        f"{module.name}.{name}-{number}": pattern
        for module in pkgutil.iter_modules(window.__path__)
        for name, value in vars(importlib.import_module(f"{window.__name__}.{module.name}")).items()
        for number, pattern in enumerate(patterns_in(value))
    }


PATTERNS = known_patterns()


def test_the_patterns_are_found() -> None:
    modules = {name.split(".")[0] for name in PATTERNS}
    assert modules >= {"device_side", "waiting", "warmth", "copies", "host_side", "steps", "completeness"}


@pytest.mark.parametrize("known", PATTERNS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_a_pattern_finds_it_finds_after_scrubbing(known: str, data: st.DataObject) -> None:
    found = data.draw(st.from_regex(PATTERNS[known].pattern, fullmatch=False).filter(str.isprintable))
    before, after = data.draw(st.sampled_from([("", " /home/ada/x"), ("", "/home/ada/x"), ("/home/ada/x ", "")]))
    name = f"{before}{found}{after}"
    safe = SafeNames().of(data.draw(st.sampled_from(CATEGORIES)), name)
    assert "ada" not in safe
    for which, pattern in PATTERNS.items():
        assert bool(pattern.search(name)) == bool(pattern.search(safe)), (which, name, safe)


TELLING = ["enumerate(DataLoader)#x.__next__", "Optimizer.step#", "Torch-Compiled Region", "stepprof: module ", "HtoD"]
TELLING += ["compile_inner (dynamo_timed)", "foo_data: a=", "ncclDevKernel_", "LaunchKernel", "cudaGraphLaunch", " "]
TELLING += ["cudaStreamSynchronize", "urQueueFinish", "ProfilerStep#3", "aten::mm", "step_", "rank0", "node", "-", "x="]
PRIVATE = [
    "/home/ada/x",
    "ada@b.co",
    "10.0.0.17",
    "0x7ffe12345678",
    "http://ada.y",
    "../ada/x",
    "/mnt/ada",
    "ada.lan:22",
]
PRIVATE += ["API_PASSWORD=ada", "password: ada", "Bearer ada4567890", "hf_ada" + "A1b2C3d4E5f6G7h8", "C:\\Users\\ada"]
NAMES = st.lists(st.sampled_from(TELLING + PRIVATE), min_size=1, max_size=4).map("".join)


@settings(max_examples=600, deadline=None)
@given(names=st.lists(st.tuples(NAMES, st.sampled_from([*CATEGORIES, "python_function"])), min_size=1, max_size=8))
def test_what_inspect_says_is_removed_is_gone_after_scrubbing(names: list[tuple[str, str]]) -> None:
    events = [complete(category, name, 2 + number, 1) for number, (name, category) in enumerate(names)]
    data = trace_bytes(step(1, 1, 100), *events)
    after = scrub_trace(data)
    assert not [part for part in (b"ada", b"10.0.0.17", b"7ffe", b"b.co", b"A1b2") if part in after]
    assert same_figures(window_of(data), window_of(after))
    assert {found.kind for found in inspect_trace(after).revealed} <= {*KEPT_BY_SCRUB}


def test_all_telling_parts_of_a_name_stay() -> None:
    name = "enumerate(DataLoader)#/home/ada/x.__next__ cudaGraphLaunch HtoD compile_inner (dynamo_timed)"
    safe = SafeNames().of("user_annotation", name)
    assert safe == "enumerate(DataLoader)#GraphLaunch HtoD label 1.__next__ compile_inner (dynamo_timed)"


@pytest.mark.parametrize("private", PRIVATE[:4])
@pytest.mark.parametrize("before", ["", "step_", "rank0_", "node", "HtoD", "ProfilerStep#", "ckpt-", "x/"])
def test_a_shape_is_seen_right_behind_a_word(before: str, private: str) -> None:
    assert kinds_by_shape(before + private)


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        ("user_annotation", "run_/home/ada/secret", "user names"),
        ("user_annotation", "../ada/secret/train.py", "paths"),
        ("user_annotation", "API_PASSWORD=hunter2xyz", "settings of the environment"),
        ("user_annotation", "step DB_PASS=s3cr3tpw done", "settings of the environment"),
        ("user_annotation", "db_password: s3cr3tpw", "secrets"),
        ("user_annotation", "Authorization: Bearer abcd1234efgh", "secrets"),
        ("cpu_op", "SECRET_KEY=abc", "settings of the environment"),
        ("cpu_op", "aten::10.0.0.17", "network addresses"),
        ("kernel", "Cijk_Alik_Bljk_SB_gh" + "p_abcdefghijklmnop1234567890", "secrets"),
        ("overhead", "/srv/ada/file", "paths"),
        ("user_annotation", "node gpu17.corp.example.com", "network addresses"),
        ("user_annotation", "on ip-10-0-0-17", "network addresses"),
        ("user_annotation", "postgres:ada:pw@db", "secrets"),
        ("user_annotation", "C:Users\\ada\\x", "user names"),
    ],
)
def test_names_that_scrub_replaces_and_inspect_tells(category: str, name: str, kind: str) -> None:
    data = trace_bytes(complete(category, name, 1, 1))
    assert kind in {found.kind for found in inspect_trace(data).revealed}
    assert name.encode() not in scrub_trace(data)


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("cpu_op", "aten::_scaled_dot_product_flash_attention_for_cpu_backward"),
        ("kernel", "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN_LDSB0_AFC1"),
        ("user_annotation", "v1.2.3.4"),
        ("user_annotation", "stepprof: module model.backbone.net"),
        ("user_annotation", "stepprof: module features.0.1.2.3"),
        ("user_annotation", "größe 前向"),
        ("user_annotation", "tokens=128"),
        ("user_annotation", "token: 5"),
        ("cpu_op", "token::mix"),
        ("user_annotation", "lr=0.1"),
        ("python_function", "torch/nn/modules/linear.py(134): forward"),
    ],
)
def test_names_that_stay(category: str, name: str) -> None:
    assert SafeNames().of(category, name) == name


@pytest.mark.parametrize("name", ["\uff0fhome\uff0fada\uff0fx", "/ho\u200bme/a\u200bda/x"])
def test_a_path_in_disguise_is_one(name: str) -> None:
    assert ("user names", "ada") in kinds_by_shape(name)
    assert SafeNames().of("user_annotation", name) == "label 1"


def test_a_file_of_torch_does_not_lead_out_of_it() -> None:
    assert SafeNames().of("python_function", "torch/../../home/ada/x.py(3): f") == "x.py(3): f"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("API_PASSWORD=hunter2xyz", "API_PASSWORD=***"),
        ('{"env": "API_KEY=letmein"}', '{"env": "API_KEY=***'),
        ('API_KEY=\\"let me in\\" x', "API_KEY=*** x"),
        ("db password: hunter2 x", "db password: *** x"),
        ('{"password": "hunter2"}', '{"password": ***}'),
        ("https://ada:pass@example.org/x", "https://***@example.org/x"),
        ("Bearer abcd1234 x", "Bearer *** x"),
        ("postgres:ada:pw@db", "postgres:ada:***@db"),
        ("nodehf_" + "aB3dE6gH9jK2mN5pQ8", "nodehf_***"),
        ("-----BEGIN RSA PRIVATE KEY" + "-----\nMIIE", "-----BEGIN RSA PRIVATE KEY***"),
        ("/data/hf_" + "aB3dE6gH9jK2mN5pQ8" + "/x", "/data/hf_a*** (21 characters)/x"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJal*** (40 characters)"),
        ("tokens=128", "tokens=128"),
        ("lr=0.1", "lr=0.1"),
    ],
)
def test_what_gives_access_is_masked(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize("secret", ["hunter2xyz", "A9f3kQz81L"])
def test_every_example_of_every_kind_is_masked(secret: str) -> None:
    setting = f"API_PASSWORD={secret}"
    event = complete("user_annotation", setting, 1, 1, note=setting) | {"tid": setting, "odd": setting}
    kernel = complete("kernel", setting, 1, 1)
    header = {"host_name": setting, "traceName": setting, "INFO": [setting], "PT_PROFILER_JOB_X": setting, setting: 1}
    inspection = inspect_trace(trace_bytes(event, kernel, complete(setting, setting, 1, 1), **header))
    assert len(inspection.revealed) > 8
    assert secret not in str(inspection)


@pytest.mark.parametrize(
    ("raw", "number"),
    [("1", True), ('"-1.5e-3"', True), ("null", True), ('""', True), ("1e5", True)]
    + [(f'"{text}"', False) for text in ("10.0.0.17", "2026-11-30", "1-2", "1.", "e", "--1", "1 2")],
)
def test_numbers(raw: str, number: bool) -> None:
    assert is_number(raw.encode()) == number


@pytest.mark.parametrize(
    ("raw", "numbers"),
    [("[256, 1, 1]", True), ('"[256,1,1]"', True), ('[[2, -3.5], [], ["7"]]', True), ("[]", True), ("7", True)]
    + [(f'["{text}"]', False) for text in ("10.0.0.17", "2026-11-30", "1-2", "x")],
)
def test_lists_of_numbers(raw: str, numbers: bool) -> None:
    assert is_numbers(raw.encode()) == numbers


def test_a_long_list_of_numbers_takes_no_time_to_refuse() -> None:
    assert not is_numbers(b"[" + b"11, " * 100_000 + b"x]")
    assert not is_numbers(b"1" * 1_000_000 + b"x")


@pytest.mark.parametrize("text", ["python10.0.0.17", "thread 4111 (python10.0.0.17)", "python3.11.4111"])
def test_what_is_no_track_of_the_profilers(text: str) -> None:
    assert not OWN_TEXT.fullmatch(text)
    assert OWN_TEXT.fullmatch("thread 4111 (python3.11)")


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA A100-SXM4-40GB",
        "NVIDIA A100-PG509-200",
        "NVIDIA A100 80GB PCIe MIG 1g.10gb",
        "NVIDIA GeForce RTX 3070 Ti Laptop GPU",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA GH200 480GB",
        "NVIDIA B200",
        "Tesla V100-DGXS-32GB",
        "Quadro GP100",
        "AMD Instinct MI300X VF",
        "AMD Instinct MI250X/MI250",
        "AMD Radeon RX 7900 XTX",
        "Intel(R) Data Center GPU Max 1550",
        "Intel(R) Arc(TM) A770 Graphics",
        "Intel(R) UHD Graphics [0x9a49]",
    ],
)
def test_device_names(name: str) -> None:
    assert DEVICE_NAME.fullmatch(name)


@pytest.mark.parametrize("name", ["NVIDIA alice-ws.corp.example", "AMD s3cret project box", "NVIDIA", "my GPU"])
def test_what_is_no_name_of_a_device(name: str) -> None:
    assert not DEVICE_NAME.fullmatch(name)
    data = trace_bytes(complete("cpu_op", "aten::mm", 1, 1), deviceProperties=[{"id": 0, "name": name}])
    assert name.encode() not in scrub_trace(data)
    assert {found.kind for found in inspect_trace(data).revealed} == {"process ids", "unexpected values"}
