"""The host's launches of kernels, and how long the kernels waited and ran."""

import numpy as np

from pytest_stepprof.analysis.traces.reader import Kind
from pytest_stepprof.analysis.window.device_side import DeviceSide
from pytest_stepprof.analysis.window.groups import GroupedSpans, lengths_ns, unions
from pytest_stepprof.analysis.window.host_side import HostSide
from pytest_stepprof.analysis.window.selection import per_step
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import Integers
from pytest_stepprof.record.window import SHORT_KERNEL_NS, LaunchUse


def launch_use(side: DeviceSide, host: HostSide, steps: Steps) -> LaunchUse:
    """Describe the calls that launch one kernel each, and their kernels. Launches of graphs are not among them.

    Where clocks differ, nothing is known of queue delays: all are off by the difference, not only those below 0.
    """
    rows, kernels = side.kernel_launches, side.kernels_of_launches()
    step, start_ns = side.call_step[rows], side.calls.start_ns[rows]
    duration_ns = side.work.duration_ns[kernels]
    queue_ns = (side.work.start_ns[kernels] - side.launch_ns[kernels])[: 0 if side.early else None]
    merged = unions(GroupedSpans(step, start_ns, start_ns + side.calls.duration_ns[rows]))
    recorded = np.isin(side.calls.thread[rows], np.unique(host.thread[host.kind == Kind.OPERATOR]))
    return LaunchUse(
        calls=per_step(step, steps),
        launch_cpu_ns=tuple(lengths_ns(merged, len(steps)).tolist()),
        short_kernels=per_step(side.step[kernels[duration_ns < SHORT_KERNEL_NS]], steps),
        without_operator=per_step(step[~recorded], steps),
        median_kernel_ns=_median(duration_ns),
        median_queue_ns=_median(queue_ns),
        largest_queue_ns=int(queue_ns.max()) if len(queue_ns) else None,
    )


def _median(values: Integers) -> int | None:
    return round(float(np.median(values))) if len(values) else None
