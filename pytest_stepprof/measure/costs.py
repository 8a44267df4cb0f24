"""What steps will cost, as far as the warm-up tells."""

from statistics import median

from pytest_stepprof.analysis.plan import StepCosts
from pytest_stepprof.measure.sampling import Samples, Stepper


def costs_seen(stepper: Stepper, taken: Samples, restart_ns: int, iterator_ns: int) -> StepCosts:
    """Reduce the warm-up to what steps will cost. What the first read takes beyond others is the workers' start.

    ``taken`` are samples of one step each; ``restart_ns`` is what beginning again took without that first read, and
    ``iterator_ns`` the part of it that comes with every pass over the batches.
    """
    first_read_ns, *others = taken.read_ns or [0]
    read_ns = median(others or [first_read_ns])
    late_ns = max(0, first_read_ns - read_ns)
    per_pass = stepper.feed.batches_per_pass
    return StepCosts(
        step_ns=min(taken.samples_ns),  # the one that other programs disturbed least: k must not be too small
        beside_ns=read_ns * (not stepper.includes_read) + ((iterator_ns + late_ns) / per_pass if per_pass else 0),
        restart_ns=restart_ns + late_ns,
    )
