"""The README is the manual: its example is run, its outputs are real, its commands and options are the ones that exist.

``STEPPROF_WRITE_README=1`` puts new outputs and the table of options in.
"""

import ast
import os
import re
import shutil
import textwrap
from pathlib import Path

import pytest

from pytest_stepprof.analysis import prediction
from pytest_stepprof.analysis.fail_rules import parse_fail_rule, parse_pattern_rule, rules_for
from pytest_stepprof.analysis.remedies import visible_ratio
from pytest_stepprof.cli.main import main
from pytest_stepprof.plugin.options import JUDGE_OPTIONS, TEST_OPTIONS
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.report.formats import FORMATS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
WRITING = os.environ.get("STEPPROF_WRITE_README") == "1"
CHANGES = (
    ('return {"loss": loss}', 'return {"loss": loss * 1.01}'),
    ("images, labels = batch", "images, labels = batch[0].clone(), batch[1]"),
)


def block(marker):
    """The text of the fenced block that follows a marker."""
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```\w*\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None, f"README.md has no block after <!-- {marker} -->"
    return found.group(1)


def write(marker, text):
    readme = README.read_text(encoding="utf-8")
    pattern = rf"(<!-- {re.escape(marker)} -->\n```\w*\n).*?```"
    README.write_text(
        re.sub(pattern, lambda found: found.group(1) + text + "```", readme, flags=re.DOTALL), encoding="utf-8"
    )


def shape(line):
    """A line without what differs from run to run: numbers, ids, and the widths of columns."""
    line = re.sub(r"\d{8}T\d{6}\.\d+Z-[0-9a-f]+", "SESSION", line)
    line = re.sub(r"(not )?(faster|slower)|the same time", "RATIO", line)
    line = re.sub(r"<?\d[\d.,]*(e-\d+)?", "0", line.replace(" (k=", "(k="))
    line = re.sub(r"\(k=0\)", "", line)
    return re.sub(r"[-=_ ]{2,}", " ", line).strip()


def shown(result):
    """What the person sees of stepprof: the failing test's own report, and the section of the session."""
    text = result.stdout.str()
    parts = [re.search(pattern, text, re.DOTALL) for pattern in (r"_+ test_training_step _+\n.*?(?=\n=+)", SECTION)]
    return "\n".join(part.group(0).strip() for part in parts if part is not None) + "\n"


def until_the_profile(text):
    """Leave out the part about each test: the README shows it once."""
    return text.split("\n--- test_step.py::test_training_step\n")[0].rstrip() + "\n\n[...]\n"


SECTION = r"=+ stepprof =+\n.*?(?=\n=+ short test summary|\n=+ \d+ (passed|failed))"
VARYING = (
    "aten::",
    "Optimizer",
    "forward",
    "backward",
    "stepprof: read",
    "- not steady",
    "- unwarmed",
    "operators not",
    "finding",
    "waited for a core",
)


def lines_that_stay(text):
    """The shapes of lines that every run has.

    Rows of costs are sorted by cost, and where wrapped bullets break depends on their numbers: these are left out, and
    so is what a busy machine adds.
    """
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith(("  - ", "    ")))
    lines = (line for line in lines if re.search(r"[\d.]+ % +[\d.]+ %$", line) is None)
    return [shape(line) for line in lines if not any(word in line for word in VARYING)]


def difference(manual, printed):
    """The lines that only the manual has, and those that only the program prints."""
    shown, real = lines_that_stay(manual), lines_that_stay(printed)
    return [line for line in shown if line not in real], [line for line in real if line not in shown]


def check(marker, text):
    if WRITING:
        write(marker, text)
    gone, new = difference(block(marker), text)
    assert not gone, f"README.md shows lines that the example does not print: {gone}\n{text}"
    assert not new, f"README.md lacks lines that the example prints: {new}\n{text}"


def test_lines_are_missed_on_either_side():
    text = "device: observed, 5 ms\nregion  12.0 %  3.0 %\nstep: 2.6 ms elapsed\n"
    more = text + "memory on cpu: 5 MiB\n"
    assert difference(text, text.replace("2.6", "<0.1").replace("12.0", "9.0")) == ([], [])
    assert difference(text, more) == ([], ["memory on cpu: 0 MiB"])
    assert difference(more, text) == (["memory on cpu: 0 MiB"], [])


def inconclusive_session(pytester, arguments):
    """Compare unchanged code until nothing shows, each time but the first with a new baseline.

    The level of a comparison is 1 %, so on a busy machine this is not always the first one.
    """
    for attempt in range(2):
        if attempt:
            shutil.rmtree(pytester.path / ".stepprof")
            pytester.runpytest_subprocess("--stepprof-save=main", *arguments)
        result = pytester.runpytest_subprocess("--stepprof-baseline=main", *arguments)
        if "could have seen" in shown(result) and "Regressed" not in shown(result):
            break
    assert result.ret == pytest.ExitCode.OK
    return result


@pytest.fixture(scope="module")
def arguments():
    """As the manual has it; where nothing is written, runs are short, because their length changes no line's shape."""
    short = () if WRITING else ("--stepprof-run-time=0.05", "--stepprof-budget=3")
    return ("--stepprof", "--benchmark-quiet", "-p", "no:cacheprovider", *short, "test_step.py")


def test_the_example_in_60_seconds(pytester, arguments, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as the manual says; a second thread would mostly wait for a core
    source = block("example: test_step.py")
    path = pytester.path / "test_step.py"
    path.write_text(source, encoding="utf-8")
    saved = pytester.runpytest_subprocess("--stepprof-save=main", *arguments)
    assert saved.ret == pytest.ExitCode.OK
    check("output: save", shown(saved))

    changed = source
    for before, after in CHANGES:
        assert before in changed
        changed = changed.replace(before, after)
    path.write_text(changed, encoding="utf-8")
    failed = pytester.runpytest_subprocess("--stepprof-baseline=main", *arguments)
    assert failed.ret == pytest.ExitCode.TESTS_FAILED
    check("output: changed", until_the_profile(shown(failed)))

    path.write_text(source, encoding="utf-8")
    check("output: unchanged", until_the_profile(shown(inconclusive_session(pytester, arguments))))

    plain = pytester.runpytest_subprocess("test_step.py")
    assert plain.ret == pytest.ExitCode.OK


def test_what_a_trace_reveals(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["trace", "inspect", str(ROOT / "tests" / "data" / "torch213_labels_renamed.json")]) == 0
    check("output: inspect", capsys.readouterr().out)


FRAGMENT = """
import pytest
import torch

batches = [torch.randn(5, 64, generator=torch.Generator().manual_seed(number)) for number in range(3)]
labels = torch.arange(5)

{marker}
def test_fragment(stepprof):
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu")

    def step(batch):
        logits = model(batch)
        return {{"logits": logits, "loss": torch.nn.functional.cross_entropy(logits, labels)}}

{body}
"""


FRAGMENTS = {
    "state": "stepprof(step, batches=batches, state=state)",
    "setup": "",
    "tolerances": "stepprof(step, batches=batches, state=model)",
    "rules": "stepprof(step, batches=batches, state=model)",
    "quality": "",
}


def test_the_fragments_do_what_the_manual_says(pytester):
    """Each fragment stands in a test of its own; all are measured twice."""
    for name, more in FRAGMENTS.items():
        text = block(f"fragment: {name}")
        is_marker = text.startswith("@")
        body = textwrap.indent(more if is_marker else text + more, "    ")
        pytester.makepyfile(**{f"test_{name}": FRAGMENT.format(marker=text if is_marker else "", body=body)})
    quick = ("--stepprof", "--stepprof-runs=1", "--stepprof-steps-per-run=2", "--stepprof-time=off")

    saved = pytester.runpytest_subprocess(*quick, "--stepprof-save=main")
    saved.assert_outcomes(passed=len(FRAGMENTS))
    again = pytester.runpytest_subprocess(*quick, "--stepprof-baseline=main")
    again.assert_outcomes(passed=len(FRAGMENTS))
    assert "quality kept" in again.stdout.str()


def test_the_rules_of_the_manual_are_rules():
    [texts] = re.findall(r"fail_on=(\(.*\))\)", block("fragment: fail_on"))
    assert [parse_fail_rule(text).gate for text in ast.literal_eval(texts)] == ["time", "counters"]

    lines = [line.strip() for line in block("fragment: fail_on ini").splitlines() if line.startswith("    ")]
    rules = [parse_pattern_rule(line) for line in lines]
    assert [rule.text for rule in rules_for(rules, "tests/test_a.py::test_training")] == ["time:50%"]
    assert [rule.text for rule in rules_for(rules, "tests/test_a.py::test_inference[8]")] == ["time:0.5ms"]

    table = section("### Rules of your own")
    shown = re.findall(r"`((?:time|memory|counters|outputs)[^`]*)`", table)
    assert len(shown) == 8
    assert all(parse_fail_rule(text).text == text for text in shown)


def test_what_a_baseline_can_see_is_what_the_manual_says():
    """The ratios are computed anew; the rates stand where they were found."""
    table = section("### What a baseline can see")
    ratios = re.findall(r"^\| (\d).*?\| ([\d.]+)x \| ([\d.]+)x \|$", table, re.MULTILINE)
    settings = JudgeSettings()
    levels = (settings.level, settings.level / 10)
    expected = [
        (str(count), *(f"{visible_ratio(count, level, settings.tolerance):.2f}" for level in levels))
        for count in (1, 2, 5)
    ]
    assert ratios == expected

    rates = re.findall(r"^\| (\d) session.*? of (\d+) \| (\d+ %) \| (\d+ %) \| (\d+ %) \|$", table, re.MULTILINE)
    assert [count for count, *_ in rates] == ["1", "2", "4", "5"]
    for count, pairs, *found in rates:
        words = rf"^ +{count}\D.*\b0 of {pairs}\b.*{'.*'.join(found)}$"
        assert re.search(words, prediction.__doc__, re.MULTILINE), (count, words)


def test_every_format_of_a_report_is_explained():
    assert sorted(re.findall(r"^\| `([a-z-]+)` \|", section("## Reports"), re.MULTILINE)) == sorted(FORMATS)


def section(heading):
    """The text of a section, up to the next heading of any level."""
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)^#+ ", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert found is not None, f"README.md has no section {heading!r}"
    return found.group(1)


def test_every_link_within_the_manual_leads_somewhere():
    readme = re.sub(r"```.*?```", "", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", readme, re.MULTILINE)
    places = {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", readme)) <= places


def default_of(option):
    """What the table says where the default is not a value."""
    without_value = {"rtol": "by dtype", "atol": "by dtype", "steps_per_run": "fills the run time"}
    default = without_value.get(option.name, option.default)
    return "no" if default is False else default


def option_table():
    rows = [
        f"| `{option.flag}{'*' if option in JUDGE_OPTIONS else ''}` | {default_of(option)} | {option.help} |"
        for option in TEST_OPTIONS
    ]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def test_the_table_of_options_is_the_one_in_force():
    readme = README.read_text(encoding="utf-8")
    if WRITING:
        readme = re.sub(
            r"(<!-- options -->\n\n)(\|.*\n)+", lambda found: found.group(1) + option_table() + "\n", readme
        )
        README.write_text(readme, encoding="utf-8")
    assert option_table() in readme


def test_the_two_commands_stand_at_the_top_and_ci_runs_the_second():
    commands = re.findall(r"^python3 -m venv .*$", README.read_text(encoding="utf-8"), re.MULTILINE)
    environments = [re.search(r"tox .*-e (\w+)$", command).group(1) for command in commands]
    assert environments == ["example", "tests"]
    assert f"\n{commands[1]}\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_tox_environment_that_the_readme_names_exists():
    named = set(re.findall(r"tox (?:-q )?-e (\w+)", README.read_text(encoding="utf-8")))
    there = set(re.findall(r"^\[testenv:(\w+)\]", (ROOT / "tox.ini").read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= there
