"""How far the medians of two sessions of unchanged code lie apart: a stated number, where nothing better is known.

Sessions are compared by a quieter value where every one has it (see ``prediction``). Medians remain for those without,
for the doubt that a median raises beside it, and for the single round of a comparison that ended early.

A session is one process, and what happens to a whole process (memory layout, neighbours, clock speed) cannot be
seen from its own steps. So the log-ratio of two sessions is given a normal distribution whose size was measured once.

How it was obtained: ten small steps (0.05 to 4 ms, inference and training, torch 2.13 on a CPU, one thread), twelve
pytest-benchmark sessions of unchanged code one after the other on two shared cores. A session's value is the median
of its steps. In sessions 1 to 6 the standard deviation of the log of that value is 3 to 18 % for single tests, 10 %
over all. Nobody knows whether the next step is one of the steady ones, so the least steady test counts, rounded up
to whole percent: 19 %. Two sessions differ by the square root of 2 times that.

How it was judged: in sessions 7 to 12, which turned out noisier (18 % over all), 150 pairs of sessions of the same
test in both directions are 300 comparisons of unchanged code. At a level of 1 % with a tolerance of 1 %, 1 of 300 is
called slower (0.3 %); a step that takes twice as long is called slower in 62 %, three times in 95 %, four times in
100 %. With the level shared by ten tests: 0 of 300, and 25 %, 86 %, 98 %. The pairs share sessions and the sessions
one machine, so this is less evidence than 300 independent comparisons would be, and the rule (least steady test,
rounded up) was chosen with these rates in view: the 10 % over all would have called 9 % of unchanged pairs slower. No
normal noise keeps such false calls below 1 % there and still sees 70 % of the doubled steps: that needs other designs.
Nothing here says how the tails go on beyond what 300 comparisons show.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, stdev

SESSION_STANDARD_DEVIATION = 0.19
"""Standard deviation of the log of one session's median, unchanged code."""

NOISE_DESCRIPTION = f"stated noise of one session, {100 * SESSION_STANDARD_DEVIATION:.0f} % (two shared cores)"
"""Where the interval of a comparison of two sessions comes from, in one phrase for a report."""

_LOG_RATIO = NormalDist(sigma=math.sqrt(2) * SESSION_STANDARD_DEVIATION)


def log_ratio_half_width(level: float) -> float:
    """Return by how much the log-ratio of two sessions exceeds its true value with probability ``level``, one-sided.

    Raises:
        ValueError: the level is not between 0 and 0.5, both excluded.
    """
    if not 0 < level < 0.5:
        raise ValueError(f"a one-sided level lies between 0 and 0.5, this one is {level!r}")
    return -_LOG_RATIO.inv_cdf(level)


def median_half_width(logs: Sequence[float], level: float) -> tuple[float, str]:
    """Return by how much a new session exceeds the mean of ``logs`` with probability ``level``, and whose noise it is.

    ``logs`` are the logarithms of one median per session of unchanged code. Where they spread more than stated, the
    half width grows with them; it is never narrower than stated. The phrase is for a report.

    Raises:
        ValueError: the level is not between 0 and 0.5, both excluded, or there is no session.
    """
    if not logs:
        raise ValueError("a half width needs at least one session")
    spread = stdev(logs) if len(logs) > 1 else 0.0
    width = log_ratio_half_width(level) * math.sqrt((1 + 1 / len(logs)) / 2)
    if spread <= SESSION_STANDARD_DEVIATION:
        return width, NOISE_DESCRIPTION
    phrase = f"spread of {len(logs)} sessions, {100 * spread:.2g} %, which is above the {NOISE_DESCRIPTION}"
    return width * spread / SESSION_STANDARD_DEVIATION, phrase
