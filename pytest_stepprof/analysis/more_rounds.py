"""What it would take to decide a test that was left open: more rounds, or other noise. An estimate, and no promise."""

import math
from statistics import fmean

from scipy.special import stdtrit

from pytest_stepprof.analysis.suite_decision import LOOKS, Decision
from pytest_stepprof.record.lockstep import AbRecord
from pytest_stepprof.record.settings import JudgeSettings

_MOST_ROUNDS = 60  # nobody waits for more
_SPARE = 1.1  # rounds do not all take equally long
_TENTHS_OF_A_MINUTE_S = 10


def what_would_decide(decided: Decision, judge: JudgeSettings, record: AbRecord) -> str:
    """Say in a sentence how many rounds would probably decide this test, with the options that allow them.

    ``decided`` is an ``inconclusive`` test's state at the end of ``record``. Mean and spread are taken to stay what
    they are; where no number of rounds that one would wait for is enough, the sentence names what else helps.
    """
    needed = rounds_to_decide(decided, judge)
    if needed is None:
        spread = "" if decided.spread is None else f" (the spread of a round is {100 * decided.spread:.2g} %)"
        return (
            f"More rounds would hardly decide it{spread}: a quieter machine would, fewer threads than cores, or "
            "another limit (--stepprof-limit)."
        )
    options = [f"--max-rounds {needed}"] if needed > record.most_rounds else []
    options += [f"--budget {_seconds(needed, record)}s"] if record.rounds else []
    named = f": {' '.join(options)}" if options else ""
    return f"About {needed} rounds would decide it, if they go on as these did{named}."


def rounds_to_decide(decided: Decision, judge: JudgeSettings) -> int | None:
    """Return the number of rounds after which one end of the interval decides; ``None`` where 60 are not enough."""
    if decided.spread is None or decided.rounds < LOOKS[0]:
        return LOOKS[0]
    for rounds in range(decided.rounds + 1, _MOST_ROUNDS + 1):
        below, above = (
            decided.spread / math.sqrt(rounds) * -float(stdtrit(rounds - 1, level))
            for level in (decided.level_lower, decided.level_upper)
        )
        slower = decided.mean - below > math.log1p(judge.tolerance)
        if slower or decided.mean + above < math.log1p(judge.limit):
            return rounds
    return None


def _seconds(rounds: int, record: AbRecord) -> int:
    """The rounds' own time, to the next ten seconds."""
    needed_s = _SPARE * rounds * fmean(done.duration_s for done in record.rounds)
    return math.ceil(needed_s / _TENTHS_OF_A_MINUTE_S) * _TENTHS_OF_A_MINUTE_S
