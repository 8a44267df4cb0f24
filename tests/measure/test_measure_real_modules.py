"""Real modules of torch, the whole way: two sessions agree, and the state is afterwards what it was, bit by bit."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from measuring import SHORT_WINDOW, bits, codes, compared, measurement_of
from measuring import measured_with_window as measured
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.checkpoint import checkpoint

from pytest_stepprof.measure.phases import MeasuredStep

pytestmark = pytest.mark.usefixtures("one_thread")

TOKENS, WIDTH = 20, 8


@dataclass
class Training:
    """A module with what trains it. ``loss_of`` gives the loss and what else the step returns."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: list[Any]
    loss_of: Callable[[Any], tuple[torch.Tensor, Any]]
    more_state: tuple[Any, ...] = ()
    after_step: Callable[[], object] = field(default=lambda: None)

    def step(self, batch: Any) -> dict[str, Any]:
        self.optimizer.zero_grad()
        loss, result = self.loss_of(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.after_step()
        return {"loss": loss, "result": result}

    @property
    def state(self) -> tuple[Any, ...]:
        return self.model, self.optimizer, *self.more_state

    def measure(self) -> MeasuredStep:
        return measured(self.step, batches=self.batches, state=self.state, check_steps=2, check_parameters=True)


# --- the modules ---------------------------------------------------------------------------------------------------


def transformer() -> Training:
    model = nn.Transformer(
        WIDTH, 2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16, dropout=0.2, batch_first=True
    )
    batches = [(torch.randn(3, 5, WIDTH), torch.randn(3, 4, WIDTH)) for _ in range(8)]
    causal = nn.Transformer.generate_square_subsequent_mask(4)

    def loss_of(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        out = model(*batch, tgt_mask=causal)
        return (out - batch[1]).square().mean(), out

    return Training(model, torch.optim.Adam(model.parameters(), lr=0.01), batches, loss_of)


def packed_lstm() -> Training:
    model = nn.LSTM(WIDTH, 6, num_layers=2, dropout=0.3, bidirectional=True)
    batches = [pack_sequence([torch.randn(length, WIDTH) for length in (5, 3, 2)]) for _ in range(8)]

    def loss_of(batch: PackedSequence) -> tuple[torch.Tensor, tuple[PackedSequence, Any]]:
        out, last = model(batch)
        assert isinstance(out, PackedSequence)
        return out.data.square().mean(), (out, last)

    return Training(model, torch.optim.RMSprop(model.parameters()), batches, loss_of)


def batch_norm_network() -> Training:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.2), nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=100)

    def loss_of(batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = model(batch)
        return out.square().mean() + out.abs().max(), out

    return Training(model, optimizer, list(torch.randn(8, 2, 3, 8, 8)), loss_of, (scheduler,), scheduler.step)


class TiedLanguageModel(nn.Module):
    """The same weight at both ends, as most language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.body(self.embedding(tokens)))
        return logits


def tied_language_model(run: Callable[[nn.Module], nn.Module] = lambda model: model) -> Training:
    model = TiedLanguageModel()
    called = run(model)

    def loss_of(batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = called(batch[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()), logits

    batches = list(torch.randint(TOKENS, (8, 3, 6)))
    return Training(called, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), batches, loss_of)


def sparse_embedding() -> Training:
    model = nn.Embedding(TOKENS, WIDTH, sparse=True)

    def loss_of(batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        vectors = model(batch)
        return vectors.square().mean(), vectors

    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.1)
    return Training(model, optimizer, list(torch.randint(TOKENS, (8, 3, 4))), loss_of)


def attention_with_dropout() -> Training:
    model = nn.MultiheadAttention(WIDTH, 2, dropout=0.4, batch_first=True)

    def loss_of(batch: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        out, weights = model(batch, batch, batch)
        return out.square().mean(), (out, weights)

    return Training(model, torch.optim.AdamW(model.parameters()), list(torch.randn(8, 2, 5, WIDTH)), loss_of)


def checkpointed() -> Training:
    first, second = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.3), nn.Tanh()) for _ in range(2))
    model = nn.ModuleList([first, second])

    def loss_of(batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle = checkpoint(first, batch, use_reentrant=False)
        out = checkpoint(second, middle, use_reentrant=False)
        return out.square().mean(), out

    return Training(model, torch.optim.NAdam(model.parameters()), list(torch.randn(8, 3, WIDTH)), loss_of)


ROWS: dict[str, tuple[Callable[[], Training], tuple[str, ...]]] = {
    "transformer": (transformer, ("torch cpu",)),
    "packed lstm": (packed_lstm, ("torch cpu",)),
    "batch norm network": (batch_norm_network, ("torch cpu",)),
    "tied language model": (tied_language_model, ()),
    "sparse embedding": (sparse_embedding, ()),
    "attention with dropout": (attention_with_dropout, ("torch cpu",)),
    "checkpointed": (checkpointed, ("torch cpu",)),
}
"""Each with the sources of random numbers that its step draws from."""


def built(make: Callable[[], Training]) -> Training:
    torch.manual_seed(21)
    return make()


def check_one_session(training: Training, draws: tuple[str, ...] | None) -> MeasuredStep:
    """Measure, and look at all that has to be so whatever the module is."""
    before = bits(training.state)
    identities = [id(parameter) for parameter in training.model.parameters()]
    seen = training.measure()
    measurement = measurement_of(seen)
    assert bits(training.state) == before
    assert [id(parameter) for parameter in training.model.parameters()] == identities
    assert measurement.repeated is not None
    assert (measurement.repeated.status, measurement.repeated.mismatches) == ("equal", ())
    assert [run.same_result for run in measurement.runs] == [True] * SHORT_WINDOW.runs
    assert draws is None or measurement.random_draws == draws
    assert codes(seen) == []
    return seen


@pytest.mark.parametrize("name", ROWS)
def test_two_sessions_agree_and_leave_no_trace(name: str) -> None:
    make, draws = ROWS[name]
    training = built(make)
    torch.manual_seed(22)
    first = check_one_session(training, draws)
    torch.manual_seed(22)
    of_the_same_objects = check_one_session(training, draws)
    other = built(make)
    torch.manual_seed(22)
    of_new_objects = check_one_session(other, draws)

    for again in (of_the_same_objects, of_new_objects):
        comparison = compared(first, again)
        assert (comparison.status, comparison.mismatches) == ("equal", ())
        assert comparison.leaves_compared == first.outputs.stored.leaf_count
        assert (again.start_state_digest, again.first_batch_digest) == (
            first.start_state_digest,
            first.first_batch_digest,
        )


@pytest.mark.parametrize("name", ROWS)
def test_a_weight_that_is_a_little_different_is_found_in_the_result_and_in_the_start(name: str) -> None:
    make, _ = ROWS[name]
    first = built(make).measure()
    other = built(make)
    with torch.no_grad():
        next(other.model.parameters()).mul_(1.01)
    changed = other.measure()
    assert compared(first, changed).status == "differ"
    assert changed.start_state_digest != first.start_state_digest


@pytest.mark.parametrize("name", ROWS)
def test_parameters_after_the_steps_are_compared_by_their_names(name: str) -> None:
    training = built(ROWS[name][0])
    seen = training.measure()
    paths = {node.path for node in seen.outputs.stored.nodes}
    names = [parameter for parameter, _ in training.model.named_parameters()]
    assert {f"['parameters']['module 0.{parameter}']" for parameter in names} <= paths
    assert {"['step 1']['loss']", "['step 2']['loss']"} <= paths


def test_tied_weights_are_one_tensor_afterwards_and_stored_once() -> None:
    training = built(tied_language_model)
    seen = training.measure()
    model = training.model
    assert isinstance(model, TiedLanguageModel)
    assert model.head.weight is model.embedding.weight
    of_weight = [node for node in seen.outputs.stored.nodes if node.shape == (TOKENS, WIDTH)]
    assert len({node.payload_key for node in of_weight}) == 1


# --- compiled ------------------------------------------------------------------------------------------------------


@pytest.fixture
def _nothing_compiled_before() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def skip_unless_it_compiles(backend: str) -> None:
    """Skip where the backend lacks something on this machine, such as a C++ compiler, which is no fault of stepprof."""
    if backend == "inductor" and not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("torch.compile's inductor needs a C++ compiler")
    try:
        torch.compile(lambda numbers: numbers + 1, backend=backend)(torch.ones(2))
    except Exception as error:
        pytest.skip(f"torch.compile does not work here with {backend}: {error}")


@pytest.mark.usefixtures("_nothing_compiled_before")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_module_repeats_and_gives_what_the_plain_one_gives(backend: str) -> None:
    skip_unless_it_compiles(backend)

    def compiled() -> Training:
        return tied_language_model(lambda model: torch.compile(model, backend=backend))  # type: ignore[return-value]

    plain = check_one_session(built(tied_language_model), ())
    seen = check_one_session(built(compiled), ())
    assert seen.start_state_digest == plain.start_state_digest
    comparison = compared(plain, seen, rtol=1e-4, atol=1e-5)
    assert (comparison.status, comparison.mismatches) == ("equal", ())
    assert seen.scenario.compiled
    assert not plain.scenario.compiled
