"""What it would take to decide a test that was left open: more rounds, or other noise. An estimate, and no promise."""

import math
from collections.abc import Mapping
from statistics import fmean

from scipy.special import stdtrit

from pytest_stepprof.analysis.looks import looks_until
from pytest_stepprof.analysis.suite_decision import LOOKS, Decision, levels_at_the_end
from pytest_stepprof.record.lockstep import AbRecord
from pytest_stepprof.record.settings import JudgeSettings

_CANDIDATES: tuple[int, ...] = (*range(LOOKS[0], 21), *range(25, 61, 5))  # nobody waits for more
_PROBABLY = 0.8
_SPARE = 1.1  # rounds do not all take equally long
_TENTHS_OF_A_MINUTE_S = 10


def what_would_decide(decided: Decision, judge: JudgeSettings, record: AbRecord) -> str:
    """Say in a sentence how many rounds would probably decide this test, with the options that allow them.

    ``decided`` is an ``inconclusive`` test's state at the end of ``record``. Mean and spread are taken to stay what
    they are; where no number of rounds that one would wait for is enough, the sentence names what else helps. Of fewer
    rounds than the first look has, nothing is foretold.
    """
    if decided.spread is None or decided.rounds < LOOKS[0]:
        to_reject = decided.rounds_to_reject
        slowdown = f", and to call a slowdown {to_reject}" if to_reject > LOOKS[0] else ""
        return f"It takes {LOOKS[0]} rounds to decide anything{slowdown}{_options(to_reject, record)}."
    needed = _rounds_to_decide(decided, judge, record)
    if needed is None:
        return (
            f"Even {_CANDIDATES[-1]} rounds might not decide it (a round's spread is {100 * decided.spread:.2g} %): "
            "what helps is a quieter machine, fewer threads than cores, or another limit (--stepprof-limit)."
        )
    return f"About {needed} rounds would probably decide it, if they go on as these did{_options(needed, record)}."


def too_few_to_reject(decisions: Mapping[str, Decision], judges: Mapping[str, JudgeSettings], record: AbRecord) -> str:
    """Say that no test at all could be called slower, because the rounds were too few; empty where that is not so.

    Tests that were accepted with so few rounds are no reason: had they been slower, they would have gone on.
    """
    still_open = [decision for decision in decisions.values() if decision.verdict == "inconclusive"]
    if not still_open or any(decision.rounds >= decision.rounds_to_reject for decision in decisions.values()):
        return ""
    needed = max(decision.rounds_to_reject for decision in still_open)
    levels = {f"{100 * judges[key].level:.3g} %" for key in decisions}
    tests = record.tests_sharing_level
    shared = f", where {tests} tests share a level of {' or '.join(sorted(levels))}" if tests > 1 else ""
    done = max(decision.rounds for decision in still_open)
    return (
        f"{done} {'round was' if done == 1 else 'rounds were'} too few to call any slowdown: that takes {needed}"
        f"{shared}{_options(needed, record)}"
    )


def _rounds_to_decide(decided: Decision, judge: JudgeSettings, record: AbRecord) -> int | None:
    """Return the number of rounds after which one end of the interval decides in four of five repetitions.

    They are drawn anew, so that their mean lies around this one with the errors of both; the levels are those of a
    comparison that ends there, its earlier looks spent. ``None`` where 60 are not enough.

    By simulation (400 tests a cell, alone or of ten, ended at 5, 8 or 15 rounds; normal noise of 2, 4 or 6 % a round):
    where a number was given, so many new rounds decided 77 to 100 % of unchanged tests, 71 to 100 % of those that are
    10 % slower, and 81 to 100 % of those that are 3 % slower with noise of 2 %. With more noise a true 3 %, which lies
    between the margins, was decided in 19 to 97 %.
    """
    assert decided.spread is not None, "one round has no spread, and nothing is foretold"
    for rounds in (candidate for candidate in _CANDIDATES if candidate > decided.rounds):
        lower_level, upper_level = levels_at_the_end(
            rounds,
            shared_by=max(1, record.tests_sharing_level),
            settings=judge,
            looks=looks_until(max(rounds, record.most_rounds)),
        )
        apart = float(stdtrit(decided.rounds - 1, _PROBABLY)) * math.sqrt(1 / decided.rounds + 1 / rounds)
        above = decided.spread * (apart - float(stdtrit(rounds - 1, upper_level)) / math.sqrt(rounds))
        if decided.mean + above < math.log1p(judge.limit):
            return rounds
        if lower_level is None:
            continue
        below = decided.spread * (apart - float(stdtrit(rounds - 1, lower_level)) / math.sqrt(rounds))
        if decided.mean - below > math.log1p(judge.tolerance):
            return rounds
    return None


def _options(rounds: int, record: AbRecord) -> str:
    """Name the options that allow so many rounds; where they were allowed, only the rounds are missing."""
    options = [f"--max-rounds {rounds}"] if rounds > record.most_rounds else []
    needed_s = _seconds(rounds, record)
    options += [f"--budget {needed_s}s"] if needed_s > record.budget_s else []
    return f" ({' '.join(options)})" if options else ""


def _seconds(rounds: int, record: AbRecord) -> int:
    """The rounds' own time, to the next ten seconds."""
    if not record.rounds:
        return 0
    needed_s = _SPARE * rounds * fmean(done.duration_s for done in record.rounds)
    return math.ceil(needed_s / _TENTHS_OF_A_MINUTE_S) * _TENTHS_OF_A_MINUTE_S
