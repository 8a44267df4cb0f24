import getpass
import os
import platform
import socket
import sys
import sysconfig
from pathlib import Path

import pytest

from pytest_stepprof.store import environment, hardware
from pytest_stepprof.store.environment import collect_environment
from pytest_stepprof.store.variables import relevant_variables, shown_value

TORCH_FACTS = {"torch": "2.13.0", "blas": "mkl", "threads": "2", "device": "cpu", "device driver": "none"}

X86 = """processor\t: 0
model name\t: Example CPU @ 2.60GHz
cpu MHz\t\t: 2599.998
flags\t\t: fpu avx2 sse

processor\t: 1
model name\t: Example CPU @ 2.60GHz
cpu MHz\t\t: 1200.000
flags\t\t: sse fpu avx2
"""

ARM = """processor\t: 0
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd05

processor\t: 4
Features\t: fp asimd sve
CPU implementer\t: 0x41
CPU part\t: 0xd0a
"""


def test_two_calls_agree_on_hardware_and_software(tmp_path: Path) -> None:
    first = collect_environment(TORCH_FACTS, root=tmp_path)
    second = collect_environment(TORCH_FACTS, root=tmp_path)
    assert first.hardware == second.hardware
    assert first.software == second.software


def test_facts_of_torch_are_sorted_in(tmp_path: Path) -> None:
    facts = collect_environment(TORCH_FACTS, root=tmp_path)
    assert facts.hardware["device"] == "cpu"
    assert facts.hardware["device driver"] == "none"
    assert {name: facts.software[name] for name in ("torch", "blas", "threads")} == {
        "torch": "2.13.0",
        "blas": "mkl",
        "threads": "2",
    }
    assert "device" not in facts.software
    assert "torch" not in facts.hardware
    assert facts.software["python"] == f"{platform.python_implementation()} {platform.python_version()}"


def test_every_fact_has_a_text(tmp_path: Path) -> None:
    facts = collect_environment({}, root=tmp_path)
    texts = [*facts.hardware.values(), *facts.software.values(), *facts.circumstances.values()]
    assert all(isinstance(text, str) and text for text in texts)
    assert set(facts.hardware) == {
        "cpu model",
        "cpu flags digest",
        "logical cores",
        "usable cores",
        "cpu governor",
        "cgroup cpu limit",
        "cgroup memory limit",
        "architecture",
        "memory",
    }


def test_no_host_user_or_place_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "secret-host")
    monkeypatch.setattr(getpass, "getuser", lambda: "secret-user")
    monkeypatch.setattr(platform, "node", lambda: "secret-host")
    monkeypatch.setenv("TORCH_TRACE", str(tmp_path))
    monkeypatch.setenv("HOSTNAME", "secret-host")
    monkeypatch.setenv("USER", "secret-user")
    text = repr(collect_environment(TORCH_FACTS, root=tmp_path / "project"))
    assert "secret" not in text
    assert str(tmp_path) not in text


def test_a_setting_that_matters_is_a_software_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert collect_environment({}, root=tmp_path).software["variable OMP_NUM_THREADS"] == "4"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert "variable OMP_NUM_THREADS" not in collect_environment({}, root=tmp_path).software


def test_the_hash_seed_is_shown_but_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    first = collect_environment({}, root=tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "2")
    second = collect_environment({}, root=tmp_path)
    assert (first.circumstances["hash seed"], second.circumstances["hash seed"]) == ("1", "2")
    assert first.software == second.software


def test_a_system_that_tells_nothing_gives_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "read_text", lambda path: "")
    for name in ("sched_getaffinity", "sysconf", "getloadavg"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    for name in ("machine", "processor", "system", "release"):
        monkeypatch.setattr(platform, name, lambda: "")
    monkeypatch.setattr(sys, "platform", "win32")
    facts = collect_environment({}, root=tmp_path)
    assert set(facts.hardware.values()) == {"unknown"}
    assert facts.software["operating system"] == facts.software["kernel"] == "unknown"
    assert {name: facts.circumstances[name] for name in ("load average", "cpu frequency")} == {
        "load average": "unknown",
        "cpu frequency": "unknown",
    }


def test_the_driver_is_a_fact_only_where_a_device_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "driver_fact", lambda: "nvidia 535.104.05")
    with_device = {"torch": "2.13.0", "device": "NVIDIA H200"}
    assert collect_environment(with_device, root=tmp_path).hardware["device driver"] == "nvidia 535.104.05"
    assert collect_environment(TORCH_FACTS, root=tmp_path).hardware["device driver"] == "none"  # torch knows better
    assert "device driver" not in collect_environment({"torch": "2.13.0"}, root=tmp_path).hardware


def test_the_driver_is_the_kernel_module_that_is_loaded(tmp_path: Path) -> None:
    assert hardware.driver_fact(tmp_path) == "unknown"
    make(tmp_path / "i915", srcversion="0123\n")  # a module of the kernel itself has no version of its own
    assert hardware.driver_fact(tmp_path) == "unknown"
    make(tmp_path / "nvidia", version="535.104.05\n")
    assert hardware.driver_fact(tmp_path) == "nvidia 535.104.05"
    make(tmp_path / "amdgpu", version="6.3.6\n")
    assert hardware.driver_fact(tmp_path) == "nvidia 535.104.05, amdgpu 6.3.6"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, "GCC 12.2.0"), ({"Py_GIL_DISABLED": 1, "Py_DEBUG": 0}, "GCC 12.2.0, free-threaded")],
)
def test_what_python_was_built_by_is_a_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, int], expected: str
) -> None:
    monkeypatch.setattr(platform, "python_compiler", lambda: "GCC 12.2.0")
    monkeypatch.setattr(sysconfig, "get_config_var", variables.get)
    assert collect_environment({}, root=tmp_path).software["python compiler"] == expected


def test_a_mac_is_asked_by_sysctl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "read_text", lambda path: "")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(hardware, "_sysctl", {"machdep.cpu.brand_string": "Example M9"}.__getitem__)
    assert hardware.hardware_facts()["cpu model"] == "Example M9"


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [
        (X86, "Example CPU @ 2.60GHz"),
        (X86.replace("Example", "Other", 1), "Example CPU @ 2.60GHz + Other CPU @ 2.60GHz"),
        (ARM, "implementer 0x41, part 0xd05/0xd0a"),
        ("cpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("", None),
        ("nonsense", None),
    ],
)
def test_cpu_model(cpuinfo: str, model: str | None) -> None:
    assert hardware.cpu_model(cpuinfo) == model


def test_the_flags_digest_depends_on_the_set_of_flags_only() -> None:
    digest = hardware.cpu_flags_digest(X86)
    assert digest == hardware.cpu_flags_digest("flags : avx2 sse fpu\n")
    assert digest != hardware.cpu_flags_digest("flags : avx2 sse\n")
    assert hardware.cpu_flags_digest(ARM) == hardware.cpu_flags_digest("Features : asimd fp sve\n")
    assert hardware.cpu_flags_digest("") == "unknown"


def make(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_the_tightest_limit_of_a_control_group_and_its_parents_counts(tmp_path: Path) -> None:
    make(tmp_path / "pod" / "container", cpu__max="max 100000\n")
    make(tmp_path / "pod", cpu__max="150000 100000\n")
    assert hardware.cgroup_cpu_limit("0::/pod/container\n", tmp_path) == "1.5 CPUs"
    make(tmp_path / "pod" / "container", cpu__max="50000 100000\n")
    assert hardware.cgroup_cpu_limit("0::/pod/container\n", tmp_path) == "0.5 CPUs"


def test_a_control_group_that_cannot_be_seen_leaves_what_is_above_it(tmp_path: Path) -> None:
    make(tmp_path, cpu__max="200000 100000\n")
    assert hardware.cgroup_cpu_limit("0::/docker/0123\n", tmp_path) == "2 CPUs"


@pytest.mark.parametrize("path", ["/../other", "/..", "/"])
def test_a_control_group_outside_of_the_mount_is_no_limit(tmp_path: Path, path: str) -> None:
    assert hardware.cgroup_cpu_limit(f"0::{path}\n", tmp_path) == "none"


def test_limits_of_the_first_version_of_control_groups(tmp_path: Path) -> None:
    memberships = "4:memory:/a\n3:cpu,cpuacct:/a\n2:cpuset:/\n0::/\n"
    make(tmp_path / "cpu,cpuacct" / "a", cpu__cfs_quota_us="300000\n", cpu__cfs_period_us="100000\n")
    make(tmp_path / "cpu,cpuacct", cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    make(tmp_path / "memory" / "a", cpu__cfs_quota_us="1\n", cpu__cfs_period_us="100000\n")
    assert hardware.cgroup_cpu_limit(memberships, tmp_path) == "3 CPUs"


@pytest.mark.parametrize("text", ["max 100000\n", "", "0 0\n", "nonsense"])
def test_no_limit(tmp_path: Path, text: str) -> None:
    make(tmp_path, cpu__max=text)
    assert hardware.cgroup_cpu_limit("0::/\n", tmp_path) == "none"
    assert hardware.cgroup_cpu_limit("", tmp_path) == "unknown"


def test_the_tightest_memory_limit_counts(tmp_path: Path) -> None:
    make(tmp_path / "pod" / "container", memory__max="max\n")
    assert hardware.cgroup_memory_limit("0::/pod/container\n", tmp_path) == "none"
    make(tmp_path / "pod", memory__max=f"{4 * 2**30}\n")
    assert hardware.cgroup_memory_limit("0::/pod/container\n", tmp_path) == "4 GiB"
    make(tmp_path / "pod" / "container", memory__max=f"{3 * 2**29}\n")
    assert hardware.cgroup_memory_limit("0::/pod/container\n", tmp_path) == "1.5 GiB"
    assert hardware.cgroup_memory_limit("", tmp_path) == "unknown"


@pytest.mark.parametrize(("limit", "shown"), [(2**33, "8 GiB"), (9223372036854771712, "none")])
def test_a_memory_limit_of_the_first_version_of_control_groups(tmp_path: Path, limit: int, shown: str) -> None:
    make(tmp_path / "memory" / "a", memory__limit_in_bytes=f"{limit}\n")
    make(tmp_path / "cpu,cpuacct" / "a", memory__limit_in_bytes="1073741824\n")
    assert hardware.cgroup_memory_limit("4:memory:/a\n3:cpu,cpuacct:/a\n0::/\n", tmp_path) == shown


def test_governors_and_frequency(tmp_path: Path) -> None:
    assert hardware.governors(tmp_path) == "unknown"
    assert hardware.cpu_frequency(tmp_path, X86) == "2600 MHz"
    assert hardware.cpu_frequency(tmp_path, "") == "unknown"
    for core, governor in enumerate(("powersave", "performance", "powersave")):
        make(
            tmp_path / f"cpu{core}" / "cpufreq",
            scaling_governor=f"{governor}\n",
            scaling_cur_freq=f"{core + 1}100000\n",
        )
    assert hardware.governors(tmp_path) == "performance, powersave"
    assert hardware.cpu_frequency(tmp_path, X86) == "1100 MHz"


ROOT = Path("/home/someone/project")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OMP_NUM_THREADS", "4"),
        ("KMP_AFFINITY", "granularity=fine,compact,1,0"),
        ("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128,expandable_segments:True"),
        ("CUDA_VISIBLE_DEVICES", ""),
        ("GOMP_CPU_AFFINITY", "0-3 8"),
    ],
)
def test_plain_settings_are_shown(name: str, value: str) -> None:
    assert shown_value(name, value, ROOT) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2"),
        ("TORCH_TRACE", "C:\\Users\\someone"),
        ("TORCH_TRACE", "~/cache"),
        ("NVIDIA_API_KEY", "short"),
        ("TORCH_HUB_TOKEN", "short"),
        ("TORCH_X", "ghp0123456789abcdefGHIJ"),
        ("CUDA_VISIBLE_DEVICES", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"),
        ("OMP_X", "someone@example.org"),
        ("OMP_X", "a\nb"),
        ("OMP_X", "\udcff"),
        ("OMP_X", "a " * 60),
    ],
)
def test_paths_and_secrets_are_told_apart_but_not_shown(name: str, value: str) -> None:
    shown = shown_value(name, value, ROOT)
    assert shown.startswith("digest:")
    assert len(shown) == len("digest:") + 8
    assert shown == shown_value(name, value, ROOT)
    assert shown != shown_value(name, value + "x/", ROOT)


def test_two_checkouts_agree_on_what_lies_inside_of_them() -> None:
    here = shown_value("LD_PRELOAD", "/one/project/lib.so", Path("/one/project"))
    assert here == shown_value("LD_PRELOAD", "/two/lib.so", Path("/two"))
    assert here != shown_value("LD_PRELOAD", "/two/lib.so", Path("/one/project"))


def test_only_variables_that_matter_are_taken_in_order() -> None:
    variables = {
        "TORCH_LOGS": "",
        "MKL_NUM_THREADS": "2",
        "HOME": "/home/someone",
        "TORCH_HOME": "/cache",
        "TORCHELASTIC_RUN_ID": "1",
        "CUDA_CACHE_PATH": "/cache",
        "CUDA_MODULE_LOADING": "LAZY",
        "TORCHINDUCTOR_CACHE_DIR": "/cache",
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "PYTHONTRACEMALLOC": "5",
        "PYTHONHASHSEED": "3",
        "AWS_SECRET_ACCESS_KEY": "x",
    }
    assert list(relevant_variables(variables, ROOT).items()) == [
        ("variable MKL_NUM_THREADS", "2"),
        ("variable PYTHONTRACEMALLOC", "5"),
        ("variable TORCHINDUCTOR_MAX_AUTOTUNE", "1"),
        ("variable TORCH_LOGS", ""),
    ]
    assert relevant_variables({"CUDA_MODULE_LOADING": "EAGER"}, ROOT) == {"variable CUDA_MODULE_LOADING": "EAGER"}
