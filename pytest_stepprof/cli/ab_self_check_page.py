"""What a self-check found, as tables."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from statistics import median, quantiles

from pytest_stepprof.analysis.other_rules import RULES
from pytest_stepprof.analysis.self_check import (
    QUIET_SPREAD,
    KnownCase,
    Rate,
    known_cases,
    mean_ratio,
    predicted_rate,
    rate,
    rate_of_rule,
    round_spreads,
)
from pytest_stepprof.analysis.units import milliseconds, percent
from pytest_stepprof.record.self_check import SelfCheckRun
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.report.document import Alignment, Block, Document, Heading, Paragraph, Table, Text

_NOTHING = "-"


def self_check_document(runs: Sequence[SelfCheckRun]) -> Document:
    """Return the tables of all comparisons together, those under another load apart."""
    blocks = chain.from_iterable(_of_load(load, runs) for load in dict.fromkeys(run.load for run in runs))
    return Document(Text("stepprof ab --self-check"), tuple(blocks))


def _of_load(load: str, runs: Sequence[SelfCheckRun]) -> Iterator[Block]:
    of_load = [run for run in runs if run.load == load]
    cases = [case for run in of_load for case in known_cases(run)]
    title = "nothing started beside it" if load == "none" else f"a busy process on {load}, which comes and goes"
    yield Heading(Text(title[0].upper() + title[1:]))
    yield Paragraph(Text(_facts(of_load)))
    if not cases:
        return
    yield Heading(Text("verdicts on the time"), 2)
    yield _verdicts(cases)
    slowed = [case for case in cases if case.kind is not None]
    if slowed:
        yield Heading(Text("slowdowns found, beside what the spread of a round predicts"), 2)
        yield _found(slowed, round_spreads(cases))
    yield Heading(Text("the same raw values by other tools' rules"), 2)
    yield _rules(cases)
    yield Heading(Text("the steps"), 2)
    yield _steps(cases, round_spreads(cases))


def _facts(runs: Sequence[SelfCheckRun]) -> str:
    seconds = [run.duration_s for run in runs]
    rounds = [len(run.record.rounds) for run in runs if run.record is not None]
    suites = " and ".join(f"{suite}" for suite in sorted({run.suite for run in runs}))
    took = f"{median(seconds):.0f} s in the median"
    if len(seconds) > 1:
        took += f", 90 % of them within {quantiles(seconds, n=10, method='inclusive')[-1]:.0f} s"
    rounds_text = f" and {median(rounds):g} rounds" if rounds else ""
    return f"{len(runs)} comparisons of suites of {suites} tests; one took {took}{rounds_text}."


def _verdicts(cases: Sequence[KnownCase]) -> Table:
    headers = ("true change", "tests", "regressed", "not regressed", "inconclusive", "other", "ratio seen", "rounds")
    unchanged = [case for case in cases if case.kind is None]
    groups = {
        "none": [case for case in unchanged if not case.beside_slowed],
        "none, beside slowed tests": [case for case in unchanged if case.beside_slowed],
    }
    for ratio, kind in sorted({(case.true_ratio, case.kind) for case in cases if case.kind is not None}):
        groups[f"{ratio - 1:.0%} slower, {kind}"] = [
            case for case in cases if case.kind == kind and case.true_ratio == ratio
        ]
    rows = [_verdict_row(name, group) for name, group in groups.items() if group]
    return _table(headers, rows)


def _verdict_row(name: str, cases: Sequence[KnownCase]) -> tuple[str, ...]:
    named = [rate(cases, verdict) for verdict in ("regressed", "not regressed", "inconclusive")]
    other = len(cases) - sum(one.hits for one in named)
    seen = mean_ratio(cases)
    return (
        name,
        str(len(cases)),
        _with_bound(named[0], upper=cases[0].kind is None),
        *(_counted(one) for one in named[1:]),
        str(other),
        _NOTHING if seen is None else f"{seen:.4f}",
        f"{median(case.rounds for case in cases):g}",
    )


def _found(slowed: Sequence[KnownCase], spreads: dict[str, float]) -> Table:
    rows = []
    for quiet in (True, False):
        for ratio in sorted({case.true_ratio for case in slowed}):
            group = [
                case
                for case in slowed
                if case.true_ratio == ratio and case.key in spreads and (spreads[case.key] <= QUIET_SPREAD) is quiet
            ]
            if group:
                where = f"{'at most' if quiet else 'above'} {QUIET_SPREAD:.1%}"
                rows.append(
                    (
                        f"{ratio - 1:.0%} slower",
                        where,
                        str(len(group)),
                        _with_bound(rate(group, "regressed"), upper=False),
                        percent(_predicted(group, spreads)),
                    )
                )
    return _table(("true change", "standard deviation of a round", "tests", "regressed", "predicted"), rows)


def _predicted(cases: Sequence[KnownCase], spreads: dict[str, float]) -> float:
    """Return the mean of the predicted rates; what is alike is simulated once."""
    alike = Counter((case.key, case.true_ratio, case.sharing, case.most_rounds) for case in cases)
    found = sum(
        count
        * predicted_rate(
            spread=spreads[key],
            true_ratio=true_ratio,
            sharing=sharing,
            settings=JudgeSettings(),
            most_rounds=most_rounds,
        )
        for (key, true_ratio, sharing, most_rounds), count in alike.items()
    )
    return found / len(cases)


def _rules(cases: Sequence[KnownCase]) -> Table:
    unchanged = [case for case in cases if case.kind is None]
    ratios = sorted({case.true_ratio for case in cases if case.kind is not None})
    slowed = {ratio: [case for case in cases if case.kind is not None and case.true_ratio == ratio] for ratio in ratios}
    headers = (
        "rule",
        "unchanged code: slower",
        "faster",
        *(f"{ratio - 1:.0%} slower: found" for ratio in ratios),
    )
    own = (
        "stepprof ab",
        _counted(rate(unchanged, "regressed")),
        _counted(rate(unchanged, "improved")),
        *(_counted(rate(group, "regressed")) for group in slowed.values()),
    )
    others = [
        (
            rule,
            _counted(rate_of_rule(unchanged, rule, "slower")),
            _counted(rate_of_rule(unchanged, rule, "faster")),
            *(_counted(rate_of_rule(group, rule, "slower")) for group in slowed.values()),
        )
        for rule in RULES
    ]
    return _table(headers, [own, *others])


def _steps(cases: Sequence[KnownCase], spreads: dict[str, float]) -> Table:
    rows = []
    for key in sorted({case.key for case in cases}):
        of_test = [case for case in cases if case.key == key]
        unchanged = [case for case in of_test if case.kind is None]
        times = [case.before_ns for case in of_test if case.before_ns is not None]
        seen = mean_ratio(unchanged)
        rows.append(
            (
                key.rpartition("::")[2],
                milliseconds(median(times)) if times else _NOTHING,
                percent(spreads[key]) if key in spreads else _NOTHING,
                str(len(unchanged)),
                _counted(rate(unchanged, "inconclusive")),
                _NOTHING if seen is None else f"{seen:.4f}",
            )
        )
    return _table(("test", "base", "spread of a round", "unchanged", "inconclusive", "ratio seen"), rows)


def _with_bound(one: Rate, *, upper: bool) -> str:
    bound = f"at most {percent(one.upper)}" if upper else f"at least {percent(one.lower)}"
    return f"{one.hits} of {one.of} ({bound})"


def _counted(one: Rate) -> str:
    return _NOTHING if one.share is None else f"{one.hits} of {one.of} ({percent(one.share)})"


def _table(headers: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    right: tuple[Alignment, ...] = ("right",)
    alignments = ("left", *right * (len(headers) - 1))
    return Table(headers, tuple(tuple(Text(cell) for cell in row) for row in rows), alignments)
