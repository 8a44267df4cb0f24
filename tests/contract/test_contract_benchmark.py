"""What the bridge to pytest-benchmark relies on; also run with the lowest versions, needing neither torch nor numpy."""

import json

import pytest

VALUES_S = [0.25, 1e-9, 3.3e-05, 0.1 + 0.2, 7.0, 1e-9, 123456789e-9]
"""Not sorted, with a repetition, with more digits than a clock has: each has to come out as it went in."""


def inner(pytester: pytest.Pytester, *arguments: str, **files: str) -> pytest.RunResult:
    pytester.makeconftest("def pytest_benchmark_generate_machine_info(config): return {'cpu': {}}")
    pytester.makepyfile(**files)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)


REPLAY = f"""
    import pytest
    from pytest_stepprof.plugin import benchmark_bridge

    CLOCK = benchmark_bridge.RecordedValues()

    @pytest.mark.benchmark(timer=CLOCK)
    def test_replay(benchmark):
        assert benchmark_bridge.can_record(benchmark) is None
        calls = []
        CLOCK.load({VALUES_S!r})
        benchmark.extra_info["stepprof"] = {{"runs": 1}}
        benchmark.pedantic(lambda: calls.append(1), rounds={len(VALUES_S)}, iterations=1)
        assert len(calls) == {len(VALUES_S)}
"""


def test_recorded_values_come_out_of_the_json_bit_by_bit(pytester):
    result = inner(pytester, "--benchmark-json=out.json", test_it=REPLAY)

    assert result.ret == pytest.ExitCode.OK
    [benchmark] = json.loads((pytester.path / "out.json").read_text(encoding="utf-8"))["benchmarks"]
    assert benchmark["stats"]["data"] == VALUES_S
    assert benchmark["stats"]["rounds"] == len(VALUES_S)
    assert benchmark["stats"]["iterations"] == 1
    assert benchmark["extra_info"] == {"stepprof": {"runs": 1}}
    assert benchmark["options"]["timer"] == "measured_by_stepprof"


def test_pedantic_reads_its_timer_exactly_twice_a_round(pytester):
    result = inner(
        pytester,
        test_it="""
            import pytest

            readings = []

            def timer():
                readings.append(len(called))
                return float(len(readings))

            called = []

            @pytest.mark.benchmark(timer=timer)
            def test_pedantic(benchmark):
                benchmark.pedantic(lambda: called.append(1), rounds=5, iterations=1)
                assert readings == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
        """,
    )

    result.assert_outcomes(passed=1)


def test_a_fixture_marked_as_wrong_afterwards_is_not_in_the_json(pytester):
    wrong = REPLAY + "        benchmark_bridge.mark_as_wrong(benchmark)\n"

    result = inner(pytester, "--benchmark-json=out.json", test_it=wrong)

    assert result.ret == pytest.ExitCode.OK
    assert json.loads((pytester.path / "out.json").read_text(encoding="utf-8"))["benchmarks"] == []


VAIN = """
    from pytest_stepprof.plugin import benchmark_bridge

    def test_vain(benchmark):
        benchmark_bridge.use_in_vain(benchmark)
"""


def test_a_fixture_used_in_vain_neither_warns_nor_shows(pytester):
    result = inner(pytester, "--benchmark-json=out.json", "-W", "error", test_it=VAIN)

    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*benchmark: 1 tests*")
    assert json.loads((pytester.path / "out.json").read_text(encoding="utf-8"))["benchmarks"] == []


def test_a_disabled_fixture_is_told_that_it_was_used(pytester):
    disabled = """
        from pytest_stepprof.plugin import benchmark_bridge

        def test_disabled(benchmark):
            assert benchmark_bridge.can_record(benchmark) == "pytest-benchmark is disabled"
            benchmark_bridge.use_without_recording(benchmark)
    """

    inner(pytester, "--benchmark-disable", "-W", "error", test_it=disabled).assert_outcomes(passed=1)


def test_a_fixture_of_another_plugin_is_not_recorded_into(pytester):
    other = """
        import pytest
        from pytest_stepprof.plugin import benchmark_bridge

        class Other:
            pass

        def test_other():
            assert benchmark_bridge.can_record(Other()) == "the benchmark fixture is a Other, not pytest-benchmark's"
            benchmark_bridge.use_in_vain(Other())
            benchmark_bridge.use_without_recording(Other())
    """

    inner(pytester, test_it=other).assert_outcomes(passed=1)


def test_the_marker_is_read_when_the_fixture_is_made(pytester):
    """So that a timer may be put there at collection, beside what the user's own marker says."""
    pytester.makeconftest(
        """
        import pytest
        from pytest_stepprof.plugin import benchmark_bridge

        def pytest_benchmark_generate_machine_info(config):
            return {"cpu": {}}

        @pytest.hookimpl(tryfirst=True)
        def pytest_collection_modifyitems(items):
            for item in items:
                benchmark_bridge.prepare(item)
        """
    )
    pytester.makepyfile(
        test_it="""
        import pytest
        from pytest_stepprof.plugin import benchmark_bridge

        @pytest.mark.benchmark(group="mine", disable_gc=True)
        def test_marked(benchmark, request):
            benchmark_bridge.record(request.node, benchmark, [0.5, 0.25], {"runs": 2})
        """
    )

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--benchmark-json=out.json")

    assert result.ret == pytest.ExitCode.OK
    [benchmark] = json.loads((pytester.path / "out.json").read_text(encoding="utf-8"))["benchmarks"]
    assert benchmark["stats"]["data"] == [0.5, 0.25]
    assert benchmark["group"] == "mine"
    assert benchmark["options"]["disable_gc"] is True
    assert benchmark["extra_info"] == {"stepprof": {"runs": 2}}
