"""Which tests are about the very first step of a process, so that nothing but that is compared."""

COLD_START = "cold start"


def asks_for_cold_start(question: str | None) -> bool:
    """Say whether a scenario's question (``None`` without one) is about the first step and nothing else."""
    return question is not None and question.strip().casefold() == COLD_START
