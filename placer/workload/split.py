"""The submodules that stay on the CPU while the rest of a model runs on an accelerator."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from torch import nn
from torch.nn.parameter import is_lazy

from placer.workload.arguments import kind_of
from placer.workload.workload import Workload
from placer.workload.wrapped import unwrap

#: Most names that a message lists.
_SHOWN = 8


@dataclass(frozen=True)
class CpuPart:
    """What stays on the CPU.

    ``units`` are the paths of the modules at whose calls tensors cross to the other device. ``parameters`` and
    ``buffers`` are the numbers of those on the CPU, in the order of the model's.
    """

    units: tuple[str, ...]
    parameters: frozenset[int]
    buffers: frozenset[int]

    def unit(self, layer: str) -> str | None:
        """The unit that a layer belongs to; None for one that runs on the accelerator."""
        return next((unit for unit in self.units if _within(layer, unit)), None)


def check_on_cpu(names: Any, workload: Workload) -> tuple[str, ...]:
    """``names`` as a tuple, without those that lie inside another one.

    Raises:
        TypeError: no names.
        ValueError: a workload that has no submodules, a name that is none of them, all of the model, or weights that
            both devices would need.
    """
    found = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else None
    if found is None or not all(isinstance(name, str) for name in found):
        raise TypeError(f"on_cpu must be names of submodules (as in model.named_modules()), not {kind_of(names)}")
    if not found:
        return ()
    if workload.is_step_function:
        raise ValueError("on_cpu names submodules of a model; a step function is priced on one device only")
    if workload.compiled is not None:
        raise ValueError("a compiled model is priced on one device only: give on_cpu the model without torch.compile")
    model = _model(workload)
    known = dict(model.named_modules(remove_duplicate=False))
    for name in found:
        if name not in known:
            raise ValueError(f"on_cpu: the model has no submodule {name!r}; {_instead(name, list(known))}")
    kept = tuple(dict.fromkeys(n for n in found if not any(_within(n, other) for other in found if other != n)))
    mine = {id(p) for name in kept for p in known[name].parameters()}
    if all(id(p) in mine for p in model.parameters()):
        raise ValueError(
            f"on_cpu covers all weights of the model ({', '.join(map(repr, kept))}), so that nothing is left for the "
            "accelerator; the row cpu says what that takes"
        )
    for path, module in model.named_modules():
        inside = any(_within(path, name) for name in kept)
        for name, parameter in module.named_parameters(recurse=False):
            if not inside and id(parameter) in mine:
                raise ValueError(
                    f"on_cpu: {'.'.join(filter(None, (path, name)))} shares its weights with a module that stays on "
                    "the CPU; weights are on one device"
                )
    return kept


def cpu_part(workload: Workload) -> CpuPart:
    """What ``workload.on_cpu`` names, of its model."""
    model = _model(workload)
    known = dict(model.named_modules(remove_duplicate=False))
    modules = [known[name] for name in workload.on_cpu]
    parameters = {id(p) for module in modules for p in module.parameters()}
    buffers = {id(b) for module in modules for b in module.buffers()}
    return CpuPart(
        units=tuple(unit for name in workload.on_cpu for unit in _called(name, known[name])),
        parameters=frozenset(n for n, p in enumerate(model.parameters()) if id(p) in parameters),
        buffers=frozenset(n for n, b in enumerate(model.buffers()) if id(b) in buffers),
    )


def embedding_tables(workload: Workload) -> tuple[str, ...]:
    """The names of the modules that hold nothing but embeddings, each as high up in the model as possible."""
    if workload.is_step_function:
        return ()
    found: list[str] = []
    for path, module in _model(workload).named_modules():
        if path and not any(_within(path, above) for above in found) and _only_embeddings(module):
            found.append(path)
    return tuple(found)


def weight_share(workload: Workload, names: Iterable[str]) -> float:
    """The share of the bytes of the model's parameters that these submodules hold."""
    model = _model(workload)
    known = dict(model.named_modules(remove_duplicate=False))
    mine = {id(p) for name in names for p in known[name].parameters()}
    sizes = [(id(p) in mine, p.numel() * p.element_size()) for p in model.parameters() if not is_lazy(p)]
    return sum(size for inside, size in sizes if inside) / max(sum(size for _, size in sizes), 1)


def _model(workload: Workload) -> nn.Module:
    (model,) = workload.modules
    return cast(nn.Module, unwrap(model))


def _within(path: str, name: str) -> bool:
    return path == name or path.startswith(f"{name}.") or not name


def _called(name: str, module: nn.Module) -> Iterable[str]:
    """The modules whose calls a name stands for: itself, or what a list or mapping of modules holds."""
    if not isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        return (name,)
    return [unit for child, held in module.named_children() for unit in _called(f"{name}.{child}", held)]


def _only_embeddings(module: nn.Module) -> bool:
    """Whether all parameters of a module, of which there are some, belong to embeddings."""
    embeddings = {id(p) for m in module.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))
                  for p in m.parameters()}  # fmt: skip
    return bool(embeddings) and all(id(p) in embeddings for p in module.parameters())


def _instead(name: str, known: list[str]) -> str:
    """The names that were meant, or else the first there are."""
    names = [path for path in known if path]
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if not names:
        return "it has none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"it has {', '.join(map(repr, names[:_SHOWN]))}{more}"
