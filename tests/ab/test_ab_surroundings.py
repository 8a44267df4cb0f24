"""How a side's allocator is told to keep its memory, and when it is not."""

import sys

import pytest

from pytest_stepprof.ab.surroundings import kept_memory

ON_LINUX = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20)}


def test_memory_is_kept_where_nobody_chose_otherwise(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    assert kept_memory({"PATH": "/bin", "OMP_NUM_THREADS": "1"}) == ON_LINUX


@pytest.mark.parametrize(
    "name", ["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD"]
)
def test_who_chose_an_allocators_ways_keeps_them(monkeypatch, name):
    monkeypatch.setattr(sys, "platform", "linux")
    assert kept_memory({name: "1"}) == {}


def test_other_systems_have_another_allocator(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert kept_memory({}) == {}
