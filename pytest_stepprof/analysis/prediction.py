"""How far a new session of unchanged code may lie from the sessions of a baseline.

A session is one process. What happens to a whole process (memory layout, neighbours, clock speed, the hour) cannot be
seen from its own steps, so that sessions are the unit: a new one is held against the mean of ``k`` earlier ones. On
the log scale the half width of that one-sided prediction limit is

    t(1 - level; degrees) * s * sqrt(1 + 1 / k)

(Student's t; Hahn and Meeker, Statistical Intervals, chapter 4). What stands for ``s``:

- One session cannot tell its own spread. A stated noise stands in: ``PRIOR_STANDARD_DEVIATION`` with
  ``PRIOR_DEGREES`` of freedom, because steps differ in how steady they are and nobody knows of which kind one is.
- Two to four can hardly tell. The stated noise stays, unless they spread more: then their variance, weighed with the
  stated one by degrees of freedom (the moderated variance of Smyth 2004, Stat Appl Genet Mol Biol 3:3).
- Five and more that spread more than stated: their own spread, with the stated degrees of freedom.
- Five and more that spread less, from at least five hours, each an hour after the one before: the moderated variance
  with the degrees of both. Within fewer hours the stated noise stays: neighbours know nothing of another hour.

The stated noise is that of the first decile of a session's samples. Ten small steps (0.05 to 4 ms, inference and
training, torch 2.13 on a CPU, one thread) were measured in twelve sessions of unchanged code on two shared cores. From
sessions 1 to 6 the two numbers were fitted by Smyth's moments; sessions 7 to 12 judged them, with a level and a
tolerance of 1 %, each against all earlier windows of k neighbours, and for k = 1 in all pairs of the judging half too:

    baseline              called slower    1.5 times    twice    three times as long
    1 (pairs, both ways)  0 of 300         25 %         86 %     100 %
    1                     0 of 510         22 %         86 %     100 %
    2                     0 of 450         29 %         90 %     100 %
    3                     0 of 390         33 %         92 %     100 %
    4                     0 of 330         34 %         93 %     100 %
    5                     0 of 270         33 %         82 %     100 %
    6                     0 of 210         34 %         80 %     100 %

Where ten tests share the level, twice as long is seen in 17 % (one session) to 42 % (six). That five sessions see less
than four is the price of believing them where they are wild: a step that is three times less steady than stated is
called slower, unchanged, in 13 % with one session, in 4 % with four, in 1 % with five (simulated, normal).

How far that goes: the decile and the shape of the noise were chosen with these rates in view, among ten values of a
session and three shapes. So they were judged three times more. Each step by the noise fitted to the nine others: 0 of
300, and 86 % of the doubled. The halves exchanged: 0 of 300, and 50 % of the doubled, 97 % of the tripled, because six
sessions tell degrees of freedom badly (2.7 and not 5.4). And 18 sessions of ten other steps, on a machine that other
programs kept busy all the time, with waiting taken into account: 0 of 3060, 98 % and 99 %, where medians saw 60 % and
82 %, their spread over sessions being four times that of deciles. Without what is known of waiting, 1 % were called
slower. Five hours could not be judged: the sessions are of one hour. Windows share sessions and sessions a machine, so
that all this is less evidence than as many independent comparisons.

What was left: five neighbours' own spread alone called 3.0 % of unchanged pairs slower, the moderated variance 2.2 %
(3.3 % for four); the median with the least steady step's noise 0.3 %, but it saw 62 % of the doubled; with the
moments' noise 2.7 %.

What a decile does not see: a change that makes only some steps slower, and leaves a tenth as fast as before.
"""

import math
from collections.abc import Sequence
from statistics import stdev

from scipy.special import stdtrit

PRIOR_STANDARD_DEVIATION = 0.103
"""Standard deviation of the log of one session's first decile, unchanged code: the stated one."""

PRIOR_DEGREES = 5.4
"""Degrees of freedom of the stated noise: how much the variances of steps differ (few: much)."""

SESSIONS_WITH_A_SPREAD = 5
HOUR_S = 3600.0
WIDEST = 30.0
"""Half width beyond which nothing can be said anyway: a factor of ten million millions in either direction."""

STATED = f"stated noise of one session, {100 * PRIOR_STANDARD_DEVIATION:.0f} % (two shared cores)"


def prediction_half_width(
    logs: Sequence[float], level: float, started_at_unix_s: Sequence[float | None] = ()
) -> tuple[float, str]:
    """Return by how much a new session exceeds the mean of ``logs`` with probability ``level``, and whose noise it is.

    ``logs`` are the logarithms of one value per session of unchanged code, oldest first, ``started_at_unix_s`` when
    each began, where that is known. The level is one-sided. The phrase is for a report.

    Raises:
        ValueError: there is no session, or the level is not between 0 and 0.5, both excluded.
    """
    if not logs:
        raise ValueError("a prediction needs at least one session")
    if not 0 < level < 0.5:
        raise ValueError(f"a one-sided level lies between 0 and 0.5, this one is {level!r}")
    spread, degrees, phrase = _spread(logs, _hours(started_at_unix_s))
    quantile = -float(stdtrit(degrees, level))  # at levels below about 1e-200 it is no number any more
    width = quantile * spread * math.sqrt(1 + 1 / len(logs))
    return width if 0 < width < WIDEST else WIDEST, phrase


def _spread(logs: Sequence[float], hours: int) -> tuple[float, float, str]:
    """Return ``s``, its degrees of freedom, and the phrase."""
    count = len(logs)
    own = stdev(logs) if count > 1 else 0.0
    spread = f"spread of {count} sessions, {_percent(own)}"
    wilder, few = own > PRIOR_STANDARD_DEVIATION, count < SESSIONS_WITH_A_SPREAD
    if wilder and not few:
        return own, PRIOR_DEGREES, f"{spread}, which is above the {STATED}"
    degrees = PRIOR_DEGREES + count - 1
    weighed = math.sqrt((PRIOR_DEGREES * PRIOR_STANDARD_DEVIATION**2 + (count - 1) * own**2) / degrees)
    if wilder:
        return weighed, PRIOR_DEGREES, f"{spread}, weighed with the {STATED}"
    if hours >= SESSIONS_WITH_A_SPREAD:
        return weighed, degrees, f"{spread}, weighed with the {STATED}"
    if few:
        return PRIOR_STANDARD_DEVIATION, PRIOR_DEGREES, STATED
    alike = f"the {count} sessions spread by {_percent(own)}, but are of fewer than {SESSIONS_WITH_A_SPREAD} hours"
    return PRIOR_STANDARD_DEVIATION, PRIOR_DEGREES, f"{STATED}: {alike}"


def _hours(started_at_unix_s: Sequence[float | None]) -> int:
    """Count starts that lie at least an hour apart. What began at an unknown time counts for none."""
    count, last = 0, -math.inf
    for start in sorted(start for start in started_at_unix_s if start is not None):
        if start - last >= HOUR_S:
            count, last = count + 1, start
    return count


def _percent(spread: float) -> str:
    return f"{100 * spread:.2g} %"
