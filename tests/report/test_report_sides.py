"""The report of ``stepprof ab``: what stands where, and what is left out."""

import msgspec
import pytest
from ab_records import DIFFER, KEY, ab_record, around, checked, measured, rounds, session

from pytest_stepprof.analysis.sides import judge_sides
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.lockstep import NamedCommit, TestRound
from pytest_stepprof.report.document import Bullets, Heading, Table, Text
from pytest_stepprof.report.figures import rounds_figures
from pytest_stepprof.report.markdown import render_markdown
from pytest_stepprof.report.rounds import round_blocks
from pytest_stepprof.report.sides import Hints, sides_report
from pytest_stepprof.report.terminal import render_terminal, visible_width

changed = msgspec.structs.replace
NO_HINTS = Hints(where={}, remedies={}, missing={}, remarks=())
VALUES = {
    "t.py::slow": around(1.07, 0.01, 8),
    "t.py::same": around(1.0, 0.01, 8),
    "t.py::open": around(1.0, 0.2, 15),
    "t.py::fast": around(0.9, 0.01, 8),
    "t.py::lost": [None] * 5,
}
RECORD = ab_record(tests_sharing_level=5, rounds=rounds(VALUES))


def report(record=RECORD, hints=NO_HINTS, *, base=(), head=(), verbosity=0, outputs=None):
    both = [measured(key) for key in VALUES]
    sides = checked(session(*both, *base), session(*both, *head))
    if outputs is not None:
        sides = checked(sides.base, sides.head, outputs=dict(sides.outputs) | outputs)
    comparison = judge_sides(sides, record).comparison
    return sides_report(record, comparison, sides.head, hints, verbosity=verbosity)


def table(document):
    return next(block for block in document.blocks if isinstance(block, Table))


def headings(document):
    return [block.text.content for block in document.blocks if isinstance(block, Heading) and block.level == 1]


def text_of(document, width=120):
    return " ".join(render_terminal(document, width=width, colour=False).split())


def test_what_not_regressed_promises_stands_under_the_table():
    assert "not regressed: no slowdown above 5 %, at a level of 1 % for each test" in text_of(report())
    both = session(measured(KEY))
    record = ab_record(rounds=rounds({KEY: VALUES["t.py::fast"]}))
    comparison = judge_sides(checked(both, both), record).comparison
    faster = sides_report(record, comparison, both, NO_HINTS, verbosity=0)
    assert "no test regressed (1 improved)" in faster.title.content
    assert "no slowdown above" not in text_of(faster)
    assert "improved: faster by more than 1 %, at a level of 1 % for each test" in text_of(faster)


def test_the_level_of_regressions_is_the_one_of_all_tests_and_looks():
    slower = "regressed: by time: slower by more than 1 %, at a level of 1 % for all tests and looks"
    faster = "improved: faster by more than 1 %, at a level of 1 % for each test"
    same = "not regressed: no slowdown above 5 %, at a level of 1 % for each test"
    assert f"{slower}; {faster}; {same}" in text_of(report())
    assert "regressed: slower" not in text_of(report(outputs={"t.py::slow": DIFFER}))


def test_what_has_to_be_known_before_any_verdict_stands_above_the_table():
    first, second, *_ = report(hints=changed_hints(lead="5 rounds were too few")).blocks
    assert (first.text.content, first.text.tone, type(second)) == ("5 rounds were too few", "attention", Table)
    assert isinstance(report().blocks[0], Table)


def test_what_failed_comes_first_and_what_stands_last():
    document = report(head=(measured("t.py::new"),), base=(measured("t.py::gone"),))
    rows = [[cell.content for cell in row] for row in table(document).rows]
    assert [row[0] for row in rows] == [
        "t.py::slow",
        "t.py::open",
        "t.py::lost",
        "t.py::new",
        "t.py::fast",
        "t.py::same",
    ]
    assert rows[0][3] == "1.07x slower"
    assert rows[0][5:] == ["8", "equal", "regressed (time)"]
    assert rows[2] == ["t.py::lost", "-", "-", "-", "-", "-", "equal", "not comparable"]
    assert rows[3][-1] == "no baseline"
    assert headings(document) == ["Failed", "Not decided", "Not judged", "Only on base", "What was compared"]


def test_the_title_is_the_answer():
    assert report().title.content == (
        "stepprof ab: 1 of 5 tests regressed (1 improved, 1 not regressed, 1 inconclusive, 1 not comparable): "
        "the working tree against main"
    )
    assert report(outputs={"t.py::same": DIFFER}).title.content.startswith("stepprof ab: 2 of 5 tests regressed (")


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_table_fits_and_keeps_ratio_and_verdict(width):
    lines = render_terminal(report(), width=width, colour=False).splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("test "))
    rows = lines[begin : begin + 7]
    assert all(visible_width(line) <= width for line in lines[: begin + 7]), "the title, too"
    assert "1.07x slower" in rows[2]
    assert rows[2].endswith("regressed (time)")


def test_samples_per_second_are_shown_as_declared():
    scenario = changed(measured().scenario, unit="samples/s", samples_per_step=4)
    both = session(measured(scenario=scenario))
    record = ab_record(rounds=rounds({KEY: [1.0] * 5}))
    comparison = judge_sides(checked(both, both), record).comparison
    cells = table(sides_report(record, comparison, both, NO_HINTS, verbosity=0)).rows[0]
    assert [cell.content for cell in cells[1:4]] == ["4000 samples/s", "4000 samples/s", "1.00x"]


def test_hints_stand_beside_their_tests():
    hints = Hints(
        where={"t.py::slow": ("aten::mm: 1 -> 2 calls/step",)},
        remedies={"t.py::open": "About 28 rounds would decide it."},
        missing={"t.py::gone": "may be t.py::new now"},
        remarks=("rounds resemble the rounds before them",),
    )
    document = report(changed(RECORD, remarks=("both sides ran one file",)), hints, base=(measured("t.py::gone"),))
    remarks = next(block for block in document.blocks if isinstance(block, Bullets))
    assert [item.content for item in remarks.items] == [
        "rounds resemble the rounds before them",
        "both sides ran one file",
    ]
    text = text_of(document)
    assert "where it went (a hint, no measure): aten::mm: 1 -> 2 calls/step" in text
    assert "t.py::open: About 28 rounds would decide it." in text
    assert "t.py::gone: may be t.py::new now" in text
    assert "t.py::lost: not comparable: Time is not judged: in round 5, base failed it: no luck." in text


def test_many_removed_tests_are_counted_and_hinted_ones_come_first():
    gone = tuple(measured(f"t.py::gone_{number}") for number in range(8))
    hints = changed_hints(missing={"t.py::gone_7": "may be t.py::new now"}, shown={"t.py::gone_7": "t.py::gone_7[4]"})
    (bullets,) = [block for block in report(base=gone, hints=hints).blocks if _is_about(block, "gone_7")]
    assert [item.content for item in bullets.items][::5] == ["t.py::gone_7[4]: may be t.py::new now", "and 3 more"]


def changed_hints(**changes):
    return Hints(**{name: getattr(NO_HINTS, name) for name in NO_HINTS.__slots__} | changes)


def _is_about(block, word):
    return isinstance(block, Bullets) and any(word in item.content for item in block.items)


def test_warnings_of_tests_that_stand_are_told_and_reasons_with_v():
    record = changed(RECORD, rounds=(*RECORD.rounds, _late("t.py::same")))
    assert "The others" in headings(report(record))
    assert "t.py::same: time: Round 16 gave no value: base's process ended." in text_of(report(record))
    verbose = report(record, verbosity=1)
    assert headings(verbose) == ["Failed", "Not decided", "Not judged", "The others", "What was compared"]
    assert "No slowdown above 5 %" in text_of(verbose)
    assert "No slowdown above 5 %" not in text_of(report(record))


def _late(key):
    (done,) = rounds({key: [None]})
    return changed(done, number=16, tests=(TestRound(key=key, node_id=key, problem="base's process ended"),))


def test_facts_name_commits_rounds_cores_and_the_seed():
    text = text_of(report(changed(RECORD, facts=("head's test files on base: t.py",), pytest_arguments=("-k", "x"))))
    assert f"base: main, commit {'b' * 40}" in text
    assert f"head: the working tree, on commit {'c' * 40}, with uncommitted changes" in text
    assert "15 rounds of two fresh processes, both sides alive together, in turns, in 15 s; ended because every" in text
    assert "seed 7; cores to measure on: 0" in text
    assert "pytest arguments: -k x" in text
    assert "head's test files on base: t.py" in text


def test_unknown_cores_and_unknown_commits_are_said():
    first, *_ = RECORD.rounds
    tests = tuple(
        changed(test, visits=tuple(changed(visit, cpus=None) for visit in test.visits)) for test in first.tests
    )
    nothing = Commit(revision=None, branch=None, changes_digest=None, untracked_files=None, note="no commit yet")
    record = changed(RECORD, rounds=(changed(first, tests=tests),), merge_base=None)
    record = changed(record, head=NamedCommit(name="the working tree", commit=nothing))
    text = text_of(report(record))
    assert "not pinned to cores" in text
    assert "the working tree (no commit yet)" in text
    assert "merge base: git finds none" in text


def test_markdown_shows_the_verdict_in_bold_and_names_as_code():
    text = render_markdown(report())
    assert text.startswith("## stepprof ab: 1 of 5 tests regressed")
    assert "| **regressed (time)** |" in text
    assert "| `t.py::slow` |" in text


def test_rounds_are_shown_by_number_with_gaps():
    values = {"t.py::a": {1: 0.01, 3: 0.03}}
    heading, _, shown, null, bullets = round_blocks(values, {"t.py::a": ["drift: none"]}, {}, {})
    assert (heading.text.content, null.text.content) == ("Rounds", "What has to be zero")
    assert shown.headers == ("test", "mean", "spread", "1", "3")
    assert [cell.content for cell in shown.rows[0]] == ["t.py::a", "+0.0200", "0.0141", "+0.0100", "+0.0300"]
    assert [item.content for item in bullets.items] == ["t.py::a: drift: none"]
    *_, taken, bullets = round_blocks(values, {}, {}, {"t.py::a": "round 3 5 % and 9 %"})
    assert taken.text.content.startswith("Waiting for a core, taken off")
    assert [item.content for item in bullets.items] == ["t.py::a: round 3 5 % and 9 %"]
    (_, _, gaps) = round_blocks({"t.py::a": {1: 0.01}, "t.py::b": {2: 0.02}}, {}, {}, {})
    assert [cell.content for cell in gaps.rows[0]] == ["t.py::a", "+0.0100", "-", "+0.0100", "-"]
    assert round_blocks({}, {}, {}, {}) == ()


def test_intervals_stand_with_the_table_and_rounds_before_the_facts():
    values = {"t.py::slow": {1: 0.07, 2: 0.08}}
    both = session(*(measured(key) for key in VALUES))
    comparison = judge_sides(checked(both, both), RECORD).comparison
    figures = rounds_figures(values, comparison)
    blocks = sides_report(RECORD, comparison, both, NO_HINTS, verbosity=0, figures=figures).blocks
    kinds = [type(block).__name__ for block in blocks]
    assert kinds[kinds.index("Table") + 1] == "IntervalsFigure"
    facts = next(at for at, block in enumerate(blocks) if block == Heading(Text("What was compared")))
    assert kinds[facts - 1] == "ValuesFigure"
    assert kinds.count("IntervalsFigure") == kinds.count("ValuesFigure") == 1
