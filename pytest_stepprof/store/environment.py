"""Where a session runs, in facts that are equal whenever the machine and its software are."""

import os
import platform
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from pytest_stepprof.record.environment import Environment
from pytest_stepprof.store.hardware import UNKNOWN, circumstance_facts, driver_fact, hardware_facts
from pytest_stepprof.store.variables import relevant_variables


def collect_environment(torch_facts: Mapping[str, str], *, root: Path) -> Environment:
    """The environment record of this process.

    ``torch_facts`` is what the room that imports PyTorch knows: those named ``device...`` are hardware, the others
    software. ``root`` is the project's folder, whose place on the disk must not make a difference. Holds no host
    name, no user name and no path. Raises nothing: what a system does not tell is ``"unknown"``.
    """
    devices = {name: fact for name, fact in torch_facts.items() if name.startswith("device")}
    others = {name: fact for name, fact in torch_facts.items() if name not in devices}
    if devices:  # on a machine without one in use, a driver changes nothing
        devices = {"device driver": driver_fact()} | devices
    return Environment(
        hardware=hardware_facts() | devices,
        software=_software_facts() | others | relevant_variables(os.environ, root.absolute()),
        # tox draws a new hash seed for every run: as a software fact it would keep all of them from being compared.
        circumstances=circumstance_facts() | {"hash seed": os.environ.get("PYTHONHASHSEED", "random")},
    )


def _software_facts() -> dict[str, str]:
    return {
        "operating system": platform.system() or UNKNOWN,
        "kernel": platform.release() or UNKNOWN,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "python compiler": _python_compiler(),
    }


def _python_compiler() -> str:
    """What this Python was built by, and how: two builds of one version differ in speed."""
    kinds = [kind for name, kind in _BUILDS.items() if sysconfig.get_config_var(name)]
    return ", ".join([platform.python_compiler().strip() or UNKNOWN, *kinds])


_BUILDS = {"Py_DEBUG": "debug build", "Py_GIL_DISABLED": "free-threaded"}
