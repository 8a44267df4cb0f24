"""After how many rounds tests are looked at, where a person allows fewer or more rounds than the design has."""

from pytest_stepprof.analysis.suite_decision import LOOKS


def looks_until(most_rounds: int) -> tuple[int, ...]:
    """Return the looks of a comparison that has ``most_rounds`` rounds at most; the last look is after these.

    They have to be known before the first round, because they decide how the error level is spent. Beyond the design's
    last look, one more follows for every four rounds; before its first one, nothing is decided.

    Raises:
        ValueError: not even one round is allowed.
    """
    if most_rounds < 1:
        raise ValueError(f"at least one round is needed, not {most_rounds!r}")
    if most_rounds <= LOOKS[0]:
        return LOOKS[:1]
    later = range(LOOKS[-1] + 4, most_rounds, 4)
    return (*(look for look in (*LOOKS, *later) if look < most_rounds), most_rounds)
