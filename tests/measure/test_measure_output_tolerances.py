import math

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_stepprof.errors import UsageError
from pytest_stepprof.measure.outputs.stored import compare_with_stored
from pytest_stepprof.measure.outputs.taking import compare_outputs, take_outputs
from pytest_stepprof.measure.outputs.tolerances import EIGHT_BIT_TOLERANCES, LeafTolerances
from pytest_stepprof.record.outputs import OutputComparison, UsedTolerance
from pytest_stepprof.record.settings import JudgeSettings, PathTolerance
from pytest_stepprof.store.directory import Store

NAN, INF = math.nan, math.inf


def _compare(
    before: object,
    after: object,
    *tolerances: PathTolerance,
    rtol: float | None = None,
    atol: float | None = None,
) -> OutputComparison:
    one, other = take_outputs(before), take_outputs(after)
    return compare_outputs(
        one.stored, one.payload, other.stored, other.payload, rtol=rtol, atol=atol, tolerances=tolerances
    )


def _for(pattern: str, rtol: float | None = None, atol: float | None = None) -> PathTolerance:
    return PathTolerance(pattern=pattern, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*", "", True),
        ("*", "['a'][0].b", True),
        ("", "", True),
        ("", "[0]", False),
        ("['loss']", "['loss']", True),
        ("['loss']", "l", False),
        ("['l?ss']", "['loss']", False),
        ("['l?ss']", "['l?ss']", True),
        ("[!a]", "[!a]", True),
        ("[!a]", "b", False),
        ("['step *']['loss']", "['step 12']['loss']", True),
        ("['step *']['loss']", "['step 12']['loss'][0]", False),
        ("*.weight*", "['parameters']['module 0.weight']", True),
        ("[*]", "[0][1]", True),
        ("['a*']", "['a\nb']", True),
        ("[0]", "[00]", False),
        ("['A']", "['a']", False),
        ('["it\'s"]*', '["it\'s"].x', True),
        ("*a*b*c*", "xxaxxbxxcxx", True),
        ("*a*b*c*", "xxaxxcxxbxx", False),
    ],
)
def test_only_a_star_has_a_meaning_in_a_pattern(pattern: str, path: str, matches: bool) -> None:
    allowed = LeafTolerances(None, None, [_for(pattern, rtol=0.5, atol=0.25)])
    tolerance = allowed.of("float32", path)
    assert (tolerance.relative, tolerance.absolute) == ((0.5, 0.25) if matches else (1.3e-6, 1e-5))
    assert allowed.unmatched([path]) == (() if matches else (pattern,))


def test_a_pattern_full_of_stars_ends() -> None:
    allowed = LeafTolerances(None, None, [_for("*a" * 40 + "b", rtol=1.0)])
    assert allowed.of("float32", "a" * 5000).source == "float32"


@pytest.mark.parametrize(
    ("given_for_all", "patterns", "expected", "source"),
    [
        ((None, None), [], (1.3e-6, 1e-5), "float32"),
        ((0.1, 0.2), [], (0.1, 0.2), "rtol and atol as given"),
        ((0.1, None), [], (0.1, 1e-5), "rtol as given, atol of float32"),
        ((None, 0.2), [], (1.3e-6, 0.2), "rtol of float32, atol as given"),
        ((0.1, 0.2), [_for("['x']", 0.3, 0.4)], (0.3, 0.4), "pattern ['x']"),
        ((0.1, 0.2), [_for("['x']", 0.3)], (0.3, 0.2), "rtol of pattern ['x'], atol as given"),
        ((None, None), [_for("*", atol=0.4)], (1.3e-6, 0.4), "rtol of float32, atol of pattern *"),
        (
            (0.1, None),
            [_for("*", 0.3, 0.4), _for("['x']", atol=0.5)],
            (0.3, 0.5),
            "rtol of pattern *, atol of pattern ['x']",
        ),
        (
            (None, None),
            [_for("*", 0.7, 0.4), _for("['x']", 0.3)],
            (0.3, 0.4),
            "rtol of pattern ['x'], atol of pattern *",
        ),
        (
            (None, None),
            [_for("['x']", 0.3), _for("*", 0.7, 0.4), _for("['x']*", atol=0.5)],
            (0.7, 0.5),
            "rtol of pattern *, atol of pattern ['x']*",
        ),
        ((None, None), [_for("['x']", 0.3, 0.4), _for("['y']", 0.5, 0.6)], (0.3, 0.4), "pattern ['x']"),
        ((0.1, 0.2), [_for("['x']", 0.0, 0.0)], (0.0, 0.0), "pattern ['x']"),
    ],
)
def test_the_last_pattern_counts_and_what_it_leaves_open_comes_from_elsewhere(
    given_for_all: tuple[float | None, float | None],
    patterns: list[PathTolerance],
    expected: tuple[float, float],
    source: str,
) -> None:
    tolerance = LeafTolerances(*given_for_all, patterns).of("float32", "['x']")
    assert (tolerance.relative, tolerance.absolute, tolerance.source) == (*expected, source)


def test_a_pattern_for_one_number_leaves_the_other_pattern_its_own() -> None:
    before, after = {"x": torch.ones(3)}, {"x": torch.full((3,), 1.05)}
    assert _compare(before, after, _for("*", rtol=0.1), _for("['x']", atol=1e-3)).status == "equal"


def test_patterns_that_match_nothing_are_named_with_regard_to_case_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.normcase", str.lower)  # as on Windows
    allowed = LeafTolerances(None, None, [_for("['LOSS']", rtol=0.5), _for("['loss']", rtol=0.5)])
    assert allowed.unmatched(["['LOSS']"]) == ("['loss']",)


def test_a_pattern_lets_one_leaf_differ_and_no_other() -> None:
    before = {"loss": torch.tensor(1.0), "logits": torch.ones(3)}
    after = {"loss": torch.tensor(1.1), "logits": torch.full((3,), 1.1)}
    found = _compare(before, after, _for("['loss']", rtol=0.2))
    assert [mismatch.path for mismatch in found.mismatches] == ["['logits']"]
    assert _compare(before, after, _for("*", rtol=0.2)).status == "equal"
    (mismatch,) = _compare(before, after, _for("*", rtol=0.2), _for("['logits']", rtol=0.01)).mismatches
    assert (mismatch.path, mismatch.relative_tolerance, mismatch.absolute_tolerance) == ("['logits']", 0.01, 1e-5)
    assert mismatch.tolerance_from == "rtol of pattern ['logits'], atol of float32"


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (torch.tensor([3]), torch.tensor([0])),
        (np.array([7], np.uint8), np.array([0], np.uint8)),
        (3, 0),
        (np.int8(3), np.int8(0)),
        (True, False),
    ],
)
def test_a_pattern_makes_no_exact_dtype_inexact(value: object, other: object) -> None:
    (mismatch,) = _compare([value], [other], _for("*", 1.0, 1e9), rtol=1.0, atol=1e9).mismatches
    assert (mismatch.relative_tolerance, mismatch.absolute_tolerance) == (0.0, 0.0)
    assert mismatch.tolerance_from == "exact dtype"


def test_a_pattern_that_matches_nothing_is_told_and_changes_nothing() -> None:
    comparison = _compare({"x": 1.0}, {"x": 1.0}, _for("['y']", 1.0), _for("['x']"), _for("", 1.0))
    assert comparison.status == "equal"
    assert comparison.note == (
        "no leaf of the result has a path like ['y'], for which a tolerance is given; "
        "no leaf of the result has a path like , for which a tolerance is given"
    )
    assert _compare({"x": 1.0}, {"x": 1.0}, _for("['x']", 1.0)).note is None
    assert _compare({"x": 1.0}, {"x": 2.0}, _for("['y']", 1.0)).status == "differ"


def test_a_pattern_for_a_leaf_that_one_side_has_matches() -> None:
    assert _compare({"x": 1.0}, {"y": 1.0}, _for("['x']", 1.0), _for("['y']", 1.0)).note is None


def test_nothing_compared_is_said_before_unmatched_patterns() -> None:
    comparison = _compare([None], [None], _for("*", 1.0))
    assert comparison.status == "not compared"
    assert comparison.note is not None
    assert comparison.note.startswith("nothing was compared")
    assert comparison.note.endswith("no leaf of the result has a path like *, for which a tolerance is given")


@pytest.mark.parametrize("bad", [-1e-9, NAN, INF, -INF])
@pytest.mark.parametrize("name", ["rtol", "atol"])
def test_a_tolerance_that_cannot_be_one_is_refused_with_its_pattern(bad: float, name: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name} for \"\['x'\]\" is .*finite number that is not negative"):
        _compare(1.0, 1.0, _for("['x']", **{name: bad}))


def test_the_tolerances_used_are_told_for_equal_results_too() -> None:
    before = {
        "loss": 1.0,
        "logits": torch.tensor([1.0, 2.0, 0.0, NAN]),
        "more": torch.tensor([4.0]),
        "half": torch.tensor([1.0], dtype=torch.float16),
        "ids": torch.tensor([1, 2]),
        "count": 3,
        "name": "same",
    }
    after = before | {"logits": torch.tensor([1.0, 2.0 + 2**-22, 1e-6, NAN]), "more": torch.tensor([4.0 + 2**-21])}
    comparison = _compare(before, after, _for("['h*']", atol=1.0))
    assert comparison.status == "equal"
    assert comparison.leaves_compared == 7
    largest = {"largest_absolute": float(np.float32(1e-6)), "largest_relative": 2**-23}
    assert comparison.tolerances == (
        _used(1e-7, 1e-7, "float64", 1),
        UsedTolerance(relative=1.3e-6, absolute=1e-5, tolerance_from="float32", leaves=2, **largest),
        _used(1e-3, 1.0, "rtol of float16, atol of pattern ['h*']", 1),
        _used(0.0, 0.0, "exact dtype", 2),
    )


def _used(relative: float, absolute: float, source: str, leaves: int) -> UsedTolerance:
    return UsedTolerance(
        relative=relative,
        absolute=absolute,
        tolerance_from=source,
        leaves=leaves,
        largest_absolute=0.0,
        largest_relative=0.0,
    )


def test_the_largest_differences_are_over_all_leaves_of_a_tolerance_whatever_passed() -> None:
    before = [torch.tensor([10.0]), torch.tensor([0.5]), torch.zeros(2)]
    after = [torch.tensor([10.0 + 2**-18]), torch.tensor([2.5]), torch.zeros(2)]
    (used,) = _compare(before, after).tolerances
    assert (used.leaves, used.largest_absolute, used.largest_relative) == (3, 2.0, 4.0)


def test_where_there_is_no_number_none_is_given() -> None:
    (used,) = _compare([torch.tensor([NAN]), torch.zeros(0)], [torch.tensor([NAN]), torch.zeros(0)]).tolerances
    assert (used.leaves, used.largest_absolute, used.largest_relative) == (2, None, None)
    assert _compare(NAN, NAN).tolerances[0].largest_absolute is None
    assert _compare("text", "text").tolerances == ()
    assert msgspec.json.decode(msgspec.json.encode(used), type=UsedTolerance) == used


def test_a_large_tensor_is_compared_block_by_block() -> None:
    before = torch.zeros(3, 2**20)
    before[2, 7] = 4.0
    after = before.clone()
    after[0, 5], after[1, 2], after[2, 3], after[2, 7] = 0.5, NAN, INF, 6.0
    moved, value = _compare(before, after).mismatches
    assert (moved.elements_beyond, moved.worst_index) == (2, (1, 2))
    assert "the first is 0.0 before and nan after, at [1, 2]" in moved.message
    assert (value.elements, value.elements_beyond, value.worst_index) == (3 * 2**20, 2, (2, 7))
    assert (value.largest_absolute, value.largest_relative) == (2.0, 0.5)
    counts = torch.zeros(2**20 + 3, dtype=torch.uint8)
    other = counts.clone()
    other[-1], other[3] = 255, 1
    (mismatch,) = _compare(counts, other).mismatches
    assert (mismatch.elements_beyond, mismatch.worst_index, mismatch.largest_absolute) == (2, (2**20 + 2,), 255.0)


def test_more_dimensions_than_numpy_knows() -> None:
    before = torch.zeros([1] * 70 + [2])
    after = before.clone()
    after[..., 1] = 1.0
    (mismatch,) = _compare(before, after).mismatches
    assert mismatch.worst_index == (*[0] * 70, 1)


@pytest.mark.parametrize("name", EIGHT_BIT_TOLERANCES)
def test_eight_bit_floats_may_move_to_their_neighbour(name: str) -> None:
    """Every number of the format against every other: the next one always passes, and so does none far away."""
    if not hasattr(torch, name):
        pytest.skip(f"this torch has no {name}")
    numbers = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).to(torch.float64)
    finite = numbers[numbers.isfinite()].unique()
    relative, absolute = EIGHT_BIT_TOLERANCES[name]
    steps = finite.diff()
    assert bool((steps <= absolute + relative * finite[:-1].abs()).all())
    assert bool((steps <= absolute + relative * finite[1:].abs()).all())
    positive = finite[finite > 0]
    assert float(positive[0]) == absolute
    normal = positive[positive >= absolute / relative]
    assert float(((normal[1:] - normal[:-1]) / normal[:-1]).max()) == relative
    three_away = finite[3:] - finite[:-3]
    assert bool((three_away > absolute + relative * finite[:-3].abs().minimum(finite[3:].abs())).all())


SMALL = st.floats(-100, 100, width=32)


@settings(max_examples=200, deadline=None)
@given(
    pairs=st.lists(st.tuples(SMALL | st.sampled_from([NAN, INF, -INF]), st.none() | SMALL), max_size=6),
    rtol=st.floats(0, 2),
    atol=st.floats(0, 2),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
)
def test_given_tolerances_mean_what_assert_close_takes_them_for(
    pairs: list[tuple[float, float | None]], rtol: float, atol: float, dtype: torch.dtype
) -> None:
    before = torch.tensor([one for one, _ in pairs]).to(dtype)
    after = torch.tensor([one if other is None else other for one, other in pairs]).to(dtype)
    try:
        # in float64, where both round alike: assert_close itself rounds the limit to the tensors' own dtype
        torch.testing.assert_close(after.double(), before.double(), rtol=rtol, atol=atol, equal_nan=True)
        expected = "equal"
    except AssertionError:
        expected = "differ"
    assert _compare(before, after, rtol=rtol, atol=atol).status == expected
    assert _compare([before], [after], _for("[*]", rtol, atol)).status == expected


@settings(max_examples=100, deadline=None)
@given(
    base=st.floats(0.5, 2.0, width=32),
    offset=st.floats(-0.5, 0.5),
    rtol=st.floats(0.001, 0.2),
    atol=st.floats(0.001, 0.2),
    size=st.integers(1, 5),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.complex64]),
    data=st.data(),
)
def test_agreement_with_assert_close_off_the_very_limit(
    base: float,
    offset: float,
    rtol: float,
    atol: float,
    size: int,
    dtype: torch.dtype,
    data: st.DataObject,
) -> None:
    before = torch.full((size,), base).to(dtype)
    after = before.clone()
    after[data.draw(st.integers(0, size - 1))] += offset
    limit = atol + rtol * abs(base)
    if abs(abs(offset) - limit) < 1e-5:
        return
    try:
        torch.testing.assert_close(after, before, rtol=rtol, atol=atol, equal_nan=True)
        expected = "equal"
    except AssertionError:
        expected = "differ"
    assert _compare(before, after, rtol=rtol, atol=atol).status == expected


def test_stored_outputs_are_compared_with_the_tolerances_for_paths(tmp_path) -> None:
    before, after = take_outputs({"x": 1.0, "y": 1.0}), take_outputs({"x": 1.5, "y": 1.5})
    store = Store(tmp_path)
    judge = JudgeSettings(tolerances=(_for("['x']", rtol=1.0),))
    comparison = compare_with_stored(store, before.stored, after.stored, after.payload, judge)
    assert [mismatch.path for mismatch in comparison.mismatches] == ["['y']"]
    judge = JudgeSettings(rtol=1.0, tolerances=(_for("['x']", rtol=0.1),))
    comparison = compare_with_stored(store, before.stored, after.stored, after.payload, judge)
    assert [mismatch.path for mismatch in comparison.mismatches] == ["['x']"]
