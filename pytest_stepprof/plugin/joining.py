"""What a baseline would hold anew when this session joins it: told before it is written."""

from collections.abc import Collection, Iterator, Sequence

import pytest

from pytest_stepprof.analysis.advised import saving
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.analysis.quality import quality_text
from pytest_stepprof.measure.outputs.stored import stored_payload
from pytest_stepprof.measure.outputs.summary import summarize_leaves
from pytest_stepprof.measure.outputs.taking import TakenOutputs
from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.record.outputs import OutputComparison, OutputMismatch, StoredOutputs
from pytest_stepprof.record.settings import GateMode
from pytest_stepprof.store.directory import Store

LEAVES_SHOWN = 20


class Joining:
    """Remembers, test by test, which results are not the baseline's and join it all the same.

    Only ``--stepprof-update-outputs`` accepts another result where equality is required; where it is not (quality was
    declared, or the gate only warns or is off), that another result joins is said as well.
    """

    def __init__(self, store: Store, *, accepting: bool, every_leaf: bool) -> None:
        self._store = store
        self._accepting = accepting
        self._most_leaves = None if every_leaf else LEAVES_SHOWN
        self._lines: dict[str, tuple[str, ...]] = {}
        self._unchecked: dict[str, str] = {}

    def note(
        self, judged: TestComparison, before: StoredOutputs | None, after: TakenOutputs, outputs_mode: GateMode
    ) -> None:
        """Remember a test that was judged against the baseline that it may join; a rerun replaces what was noted.

        Raises:
            StoreError: the baseline's result cannot be read.
        """
        self._lines.pop(judged.key, None)
        self._unchecked.pop(judged.key, None)
        if judged.verdict == "not comparable" and judged.outputs is None:
            self._unchecked[judged.key] = printable(judged.node_id)
        refused = {"outputs", "quality"} & {*judged.failed_gates}
        if refused or before is None or judged.outputs is None or judged.outputs.status != "differ":
            return
        told = self._told(judged, judged.outputs, before, after, outputs_mode)
        self._lines[judged.key] = tuple(printable(f"stepprof: {line}") for line in told)

    def show(self, reporter: "pytest.TerminalReporter | None", baseline: str, keys: Collection[str]) -> None:
        """Write what the tests of ``keys`` would change in ``baseline``: before it is changed, or if it is not."""
        lines = [line for key, lines in self._lines.items() if key in keys for line in lines]
        if not lines or reporter is None:
            return
        reporter.ensure_newline()
        reporter.write_line(f"stepprof: other results for the baseline '{printable(baseline)}':", yellow=True)
        for line in lines:
            reporter.write_line(line)

    def unchecked(self, keys: Collection[str]) -> list[str]:
        """Name the tests of ``keys`` that join although their results could not be compared."""
        return [node_id for key, node_id in self._unchecked.items() if key in keys]

    def _told(
        self,
        judged: TestComparison,
        outputs: OutputComparison,
        before: StoredOutputs,
        after: TakenOutputs,
        outputs_mode: GateMode,
    ) -> Iterator[str]:
        if judged.quality:
            how = "with a lost quality" if any(change.lost for change in judged.quality) else "because quality is kept"
            yield f"test {judged.node_id}: another result, {how}: {'; '.join(map(quality_text, judged.quality))}"
        elif not self._accepting:
            yield f"test {judged.node_id}: another result, which fails nothing here (outputs={outputs_mode})"
        yield from self._leaves(judged.node_id, outputs, before, after)

    def _leaves(
        self, node_id: str, outputs: OutputComparison, before: StoredOutputs, after: TakenOutputs
    ) -> Iterator[str]:
        old = summarize_leaves(before, stored_payload(self._store, before))
        new = summarize_leaves(after.stored, after.payload)
        by_path: dict[str, list[OutputMismatch]] = {}
        for mismatch in outputs.mismatches:
            by_path.setdefault(mismatch.path, []).append(mismatch)
        for path, mismatches in list(by_path.items())[: self._most_leaves]:
            place = f"test {node_id}: {path or 'the result'}"
            if path in old or path in new:
                yield f"{place}: {old.get(path, 'nothing')} -> {new.get(path, 'nothing')}"
            yield from (f"{place}: {mismatch.kind}: {mismatch.message}" for mismatch in mismatches)
        left_out = len(by_path) - len(list(by_path)[: self._most_leaves])
        if left_out:
            yield f"test {node_id}: and {left_out} more places (-v shows all)"


def not_comparable_line(baseline: str, node_ids: Sequence[str]) -> str:
    """Say why a session does not join a baseline: with it, another result could come in unseen."""
    return (
        f"the baseline '{printable(baseline)}' stays as it is, because it holds other starts or batches of "
        f"{first_few(node_ids, 3)}, whose results cannot be compared with it. If they are the right ones, accept them: "
        f"--stepprof {printable(saving(baseline))} --stepprof-update-outputs."
    )
