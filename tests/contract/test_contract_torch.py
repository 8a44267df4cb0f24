"""What measuring relies on in torch although torch does not promise it: a new torch that changes it fails here."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.nn.utils import parametrize
from torch.optim import lr_scheduler
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from pytest_stepprof.measure.compile_counts import compile_counts
from pytest_stepprof.measure.sparse_parts import COMPRESSED_PARTS, COORDINATE_PARTS, compressed_parts
from pytest_stepprof.measure.state import fingerprint, watch

pytestmark = pytest.mark.filterwarnings("ignore")


def test_torch_counts_who_holds_a_tensor_and_its_memory() -> None:
    tensor = torch.ones(3)
    storage = tensor.untyped_storage()
    held = torch._C._storage_Use_Count(storage._cdata)  # type: ignore[attr-defined]
    assert (held, tensor._use_count()) == (2, 1)  # type: ignore[attr-defined]
    view = tensor[1:]
    assert torch._C._storage_Use_Count(view.untyped_storage()._cdata) == held + 1  # type: ignore[attr-defined]
    before = tensor._use_count()  # type: ignore[attr-defined]
    capsule = torch.utils.dlpack.to_dlpack(tensor)  # type: ignore[attr-defined]
    more = torch._C._storage_Use_Count(storage._cdata) - held - 1 + tensor._use_count() - before  # type: ignore[attr-defined]
    assert more >= 1
    del capsule


def test_a_modules_slots_are_dicts_that_take_an_object_back_as_it_is() -> None:
    module = nn.Linear(2, 2)
    module.register_buffer("scratch", torch.ones(1), persistent=False)
    weight = module.weight
    assert type(module._parameters) is type(module._buffers) is type(module._modules) is dict
    del module.weight
    module._parameters["weight"] = weight
    assert module.weight is weight
    assert list(dict(module.named_parameters())) == ["bias", "weight"]
    assert module._non_persistent_buffers_set == {"scratch"}


def test_what_a_module_keeps_for_itself_is_known() -> None:
    """A new name here is something that a restore should think about."""
    assert set(vars(nn.Module())) == {
        "training",
        *("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_is_full_backward_hook"),
        *("_backward_pre_hooks", "_backward_hooks", "_forward_pre_hooks", "_forward_hooks"),
        *("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs"),
        *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
    }
    kept = vars(nn.Module())
    assert all(isinstance(kept[name], dict) for name in kept if name.endswith(("hooks", "_kwargs", "_called")))


def test_a_hook_is_in_its_registry_and_how_it_is_called_beside_it() -> None:
    module: Any = nn.Linear(1, 1)
    handle = module.register_forward_hook(print, with_kwargs=True, always_call=True)
    number = handle.id
    assert module._forward_hooks == {number: print}
    assert number in module._forward_hooks_with_kwargs
    assert number in module._forward_hooks_always_called
    assert module._is_full_backward_hook is None
    module.register_full_backward_hook(print)
    assert module._is_full_backward_hook is True


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_module_lists_its_weights(kind: Callable[..., Any]) -> None:
    module = kind(2, 3)
    assert module._flat_weights_names == list(module._parameters)
    assert all(one is other for one, other in zip(module._flat_weights, module.parameters(), strict=True))
    assert [reference() for reference in module._flat_weight_refs] == module._flat_weights


def test_torchs_containers_of_parameters_count_beside_their_slots() -> None:
    assert nn.ParameterList([torch.ones(1), torch.ones(1)])._size == 2
    assert list(nn.ParameterDict([("b", torch.ones(1)), ("a", torch.ones(1))])._keys) == ["b", "a"]


def test_a_parametrization_changes_the_class_and_moves_the_weight() -> None:
    module = nn.Linear(2, 2)
    parametrize.register_parametrization(module, "weight", nn.Tanh())
    assert type(module) is not nn.Linear
    assert "weight" not in module._parameters


def test_the_older_weight_norm_hides_the_weight_with_an_attribute() -> None:
    module = nn.utils.weight_norm(nn.Linear(2, 2))
    assert isinstance(vars(module)["weight"], torch.Tensor)
    assert set(module._parameters) == {"bias", "weight_g", "weight_v"}


def test_a_sparse_tensor_gives_its_own_memory_by_these_names() -> None:
    tensor = torch.sparse_coo_tensor([[0, 0], [1, 1]], torch.tensor([1.0, 2.0]), (2, 2))
    assert not tensor.is_coalesced()
    parts = {name: getattr(tensor, f"_{name}")() for name in COORDINATE_PARTS}
    assert parts["indices"].tolist() == [[0, 0], [1, 1]]
    parts["values"].add_(1)
    assert tensor.to_dense().tolist() == [[0.0, 5.0], [0.0, 0.0]]


@pytest.mark.parametrize("layout", COMPRESSED_PARTS, ids=str)
def test_a_compressed_tensor_gives_its_own_memory_by_these_names(layout: torch.layout) -> None:
    blocks = {"blocksize": (1, 1)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    tensor = torch.tensor([[0.0, 3.0], [0.0, 4.0]]).to_sparse(layout=layout, **blocks)
    parts = compressed_parts(tensor)
    by_rows = "crow_indices" in parts
    pointers, others, values = parts.values()
    assert (pointers.tolist(), others.tolist()) == (([0, 1, 2], [1, 1]) if by_rows else ([0, 0, 2], [0, 1]))
    values.mul_(2)
    assert tensor.to_dense().tolist() == [[0.0, 6.0], [0.0, 8.0]]


def test_a_nested_tensor_tells_its_sizes() -> None:
    tensor: Any = torch.nested.nested_tensor([torch.zeros(1, 2), torch.ones(3, 2)])
    assert tensor._nested_tensor_size().tolist() == [[1, 2], [3, 2]]
    assert tensor.values().numel() == 8


def test_a_wrapper_names_the_tensors_inside() -> None:
    tensor: Any = torch.nested.nested_tensor([torch.zeros(1, 2), torch.ones(3, 2)], layout=torch.jagged)
    assert is_traceable_wrapper_subclass(tensor)
    assert not is_traceable_wrapper_subclass(torch.ones(1))
    names, _ = tensor.__tensor_flatten__()
    assert {"_values", "_offsets"} <= set(names)
    assert all(isinstance(getattr(tensor, name), torch.Tensor) for name in ("_values", "_offsets"))


def test_what_a_subclass_makes_of_operations_can_be_left_out() -> None:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise ZeroDivisionError

    loud = torch.ones(2).as_subclass(Loud)
    with torch._C.DisableTorchFunctionSubclass():
        assert (loud + 1).sum().item() == 4.0


def test_a_tree_asks_from_the_outside_in_and_in_order() -> None:
    asked: list[object] = []

    def is_leaf(node: object) -> bool:
        asked.append(node)
        return False

    tree = {"b": [1, (2,)], "a": 3}
    leaves, spec = pytree.tree_flatten(tree, is_leaf=is_leaf)
    assert leaves == [1, 2, 3]
    assert asked == [tree, [1, (2,)], 1, (2,), 2, 3]
    assert pytree.tree_unflatten(leaves, spec) == tree


def test_a_scaler_keeps_a_stage_for_each_optimizer() -> None:
    scaler: Any = torch.amp.GradScaler("cpu")
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale(parameter.sum()).backward()
    scaler.unscale_(optimizer)
    assert scaler._per_optimizer_states[id(optimizer)]["stage"].name == "UNSCALED"
    assert {name for name, item in vars(scaler).items() if isinstance(item, torch.Tensor)} == {
        "_scale",
        "_growth_tracker",
    }


def test_a_quantized_tensor_has_no_dense_memory() -> None:
    tensor = torch.quantize_per_tensor(torch.tensor([0.5, 2.0]), 0.25, 3, torch.qint8)
    assert (tensor.int_repr().tolist(), tensor.q_scale(), tensor.q_zero_point()) == ([5, 11], 0.25, 3)


# --- names that are left out of the look at attributes: with another name they would be a false alarm ---------------


def _source_of(*things: Any) -> str:
    return "".join(inspect.getsource(inspect.getmodule(thing) or thing) for thing in things)


@pytest.mark.parametrize("name", sorted(watch._OPTIMIZER_OWN))
def test_names_of_an_optimizers_bookkeeping_are_torchs(name: str) -> None:
    if name == "_numel_cache":  # LBFGS counts its parameters once
        optimizer: Any = torch.optim.LBFGS([nn.Parameter(torch.ones(3))])
        assert optimizer._numel() == 3
        assert optimizer._numel_cache == 3
    else:
        assert name in _source_of(torch.optim.Optimizer, lr_scheduler.LRScheduler)


@pytest.mark.parametrize("name", sorted(watch._SCHEDULER_OWN))
def test_names_of_a_schedulers_bookkeeping_are_torchs(name: str) -> None:
    assert name in _source_of(lr_scheduler.LRScheduler)


def test_a_compiled_module_has_these_names() -> None:
    module: Any = nn.Linear(1, 1)
    module.compile(backend="eager")
    assert [name for name in vars(module) if fingerprint._is_compilers(name)] == ["_compiled_call_impl"]
    around: Any = torch.compile(nn.Linear(1, 1), backend="eager")
    assert list(around._modules) == ["_orig_mod"]


def test_the_compiler_counts_graphs_and_breaks_and_knows_what_is_compiled() -> None:
    def broken(values: torch.Tensor) -> torch.Tensor:
        doubled = values * 2
        torch._dynamo.graph_break()
        return doubled + 1

    torch._dynamo.reset()
    before = compile_counts()
    assert not before.compiled_code
    torch.compile(broken, backend="eager")(torch.ones(2))
    after = compile_counts()
    assert (after.graph_breaks - before.graph_breaks, after.graphs - before.graphs) == (1, 2)
    assert after.compiled_code
    torch._dynamo.reset()
    assert not compile_counts().compiled_code


def test_hooks_of_all_modules_see_every_call_and_go_without_a_trace() -> None:
    seen: list[str] = []

    def before(module: nn.Module, _arguments: Any) -> None:
        seen.append(f"{type(module).__name__} begins")

    def after(module: nn.Module, _arguments: Any, _result: Any) -> None:
        seen.append(f"{type(module).__name__} ends")

    handles = [
        modules.register_module_forward_pre_hook(before),
        modules.register_module_forward_hook(after, always_call=True),
    ]
    with pytest.raises(RuntimeError):
        nn.Sequential(nn.ReLU(), nn.Linear(2, 2))(torch.ones(3))
    for handle in handles:
        handle.remove()
    assert seen == [
        *("Sequential begins", "ReLU begins", "ReLU ends", "Linear begins", "Linear ends", "Sequential ends")
    ]
    kept = [name for name in vars(modules) if name.startswith("_global_") and "hooks" in name]
    assert {"_global_forward_hooks", "_global_forward_pre_hooks", "_global_forward_hooks_always_called"} <= set(kept)
    assert not any(getattr(modules, name) for name in kept if isinstance(getattr(modules, name), dict))


def test_a_compiled_call_bypasses_what_a_module_calls() -> None:
    module: Any = nn.Linear(1, 1)
    assert module._compiled_call_impl is None
    module.compile(backend="eager")
    assert vars(module)["_compiled_call_impl"] is not None
