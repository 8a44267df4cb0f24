"""Whether a baseline was measured on a busy machine: said when it is made, and not only at the first comparison."""

from collections.abc import Sequence

from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.record.measurement import Measurement


def busy_text(measurements: Sequence[Measurement]) -> str | None:
    """Say how many measurements waited for a core, and what that means for a baseline; ``None`` where none did."""
    busy = sum(any(notice.code == "busy machine" for notice in one.notices) for one in measurements)
    if not busy:
        return None
    return (
        f"{busy} of {counted(len(measurements), 'measurement')} waited for a core: times compared with this baseline "
        "will see little. Add a session from a quieter machine, or with fewer threads (OMP_NUM_THREADS=1)."
    )
