"""Tests that one side lacks: which of the other side's may be the same under another name. Hints, no comparison."""

from collections.abc import Callable, Hashable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from pytest_stepprof.record.measurement import Measurement, TestIdentity

_ALIKE = 0.75
"""Share of two names' characters that agree, from which one may be the other with a slip or a word more."""

_MOST_NAMES_COMPARED = 20_000
"""Names are compared letter by letter, which takes seconds for more: what is beyond gets no hint."""


class Likely(NamedTuple):
    """The test that another one may be, and what speaks for it."""

    test: TestIdentity
    why: str


def rename_hints(
    gone: Sequence[Measurement], there: Sequence[Measurement], *, told: str = "may be {name} now ({why})"
) -> dict[str, str]:
    """For each test of ``gone``, by key, say which test of ``there`` it may have become, and why one may think so.

    ``told`` is the sentence, with ``{name}`` and ``{why}``. See ``likely_renames``.
    """
    return {key: told.format(name=one.test.node_id, why=one.why) for key, one in likely_renames(gone, there).items()}


def likely_renames(gone: Sequence[Measurement], there: Sequence[Measurement]) -> dict[str, Likely]:
    """For each test of ``gone``, by key, find the test of ``there`` that it may have become.

    Tests for which nothing speaks are not in the result. Of several candidates, the one counts for which most speaks:
    the same function with other parameters; the same step from the same start with the same batch; the same function
    in another file; a similar name in the same file. Among those for which the same speaks, the most similar name.
    """
    kinds = [(kind, _by(kind.same, there)) for kind in _KINDS]
    left = _MOST_NAMES_COMPARED
    found: dict[str, Likely] = {}
    for measurement in gone:
        then = measurement.test
        for kind, known in kinds:
            shared = kind.same(measurement)
            candidates = [] if shared is None else known.get(shared, [])
            if len(candidates) > left:
                continue
            left -= len(candidates) if len(candidates) > 1 or kind.similar else 0
            best = _most_similar(then, candidates, similar=kind.similar)
            if best is not None:
                found[then.key] = Likely(best, kind.why)
                break
    return found


class _Kind(NamedTuple):
    """One thing that may speak for two tests being one: what they share, and whether their names are to be alike."""

    why: str
    same: Callable[[Measurement], Hashable]
    similar: bool = False


def _step(measurement: Measurement) -> Hashable:
    if measurement.step_source_digest is None:
        return None
    return measurement.step_source_digest, measurement.start_state_digest, measurement.first_batch_digest


_KINDS = (
    _Kind("the same function with other parameters", lambda one: (one.test.file, one.test.qualified_name)),
    _Kind("the same step, start and first batch", _step),
    _Kind("the same name in another file", lambda one: (one.test.qualified_name, one.test.parameters)),
    _Kind("a similar name in the same file", lambda one: (one.test.file, one.test.parameters), similar=True),
)


def _by(same: Callable[[Measurement], Hashable], there: Sequence[Measurement]) -> dict[Hashable, list[TestIdentity]]:
    found: dict[Hashable, list[TestIdentity]] = {}
    for measurement in there:
        found.setdefault(same(measurement), []).append(measurement.test)
    return found


def _most_similar(then: TestIdentity, candidates: Sequence[TestIdentity], *, similar: bool) -> TestIdentity | None:
    """Return the candidate whose key is most like that of ``then``; with ``similar``, only if its name is alike."""
    if similar:
        candidates = [one for one in candidates if _likeness(then.qualified_name, one.qualified_name) >= _ALIKE]
    if len(candidates) <= 1:
        return candidates[0] if candidates else None
    return max(candidates, key=lambda one: _likeness(then.key, one.key))


def _likeness(then: str, now: str) -> float:
    return SequenceMatcher(None, then, now).ratio()
