"""What cannot run where, for devices of this machine, of other machines and of the catalog, in every answer alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import mkldnn

import placer
from placer.decision import Obstacles
from placer.decision.obstacles import bound
from placer.errors import PlacerError
from placer.tracing import trace
from placer.workload import make_workload

QUANTIZED = "not to be moved: layer '0' (Linear) is quantized for the CPU: choose before that"


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 1))


def quantized() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(net().eval(), {nn.Linear}, dtype=torch.qint8)


def half_pooling() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 2, 3), nn.AvgPool3d(2)).half().eval()


VOLUME = torch.zeros(1, 1, 8, 8, 8, dtype=torch.float16)
#: Of what torch is about to remove, and of traces that hold for the inputs they were made with.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor", "ignore::torch.jit.TracerWarning"
)


# --- in every answer --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("calibrated")
@pytest.mark.parametrize("what_if", [None, "T4", ["RTX 4090", "H100"]])
def test_no_gpu_is_advised_for_what_cannot_run_on_one(what_if: Any) -> None:
    explanation = placer.explain(quantized(), (65_536, 8), devices=None if what_if is None else "cpu", what_if=what_if)
    assert (list(explanation.devices), explanation.turn) == (["cpu"], None)
    assert all(row.device == "cpu" for row in explanation.advice)
    assert any(QUANTIZED in note for note in explanation.notes)
    assert QUANTIZED in explanation.to_text(width=1000, full=True)
    assert any(QUANTIZED in note for note in explanation.to_dict()["notes"])
    assert set(placer.explain(net().eval(), (65_536, 8)).devices) > {"cpu"}


@pytest.mark.usefixtures("calibrated")
def test_a_fleet_ranks_no_machine_that_cannot_run_it() -> None:
    found = placer.fleet(quantized(), (65_536, 8), machines=["T4", "H100", "amd-epyc-2-core"])
    assert [row.machine for row in found.rows] == ["amd-epyc-2-core"]
    assert found.notes == (f"cuda of Tesla T4, cuda of NVIDIA H100 80GB HBM3 left out: {QUANTIZED}",)
    found = placer.fleet(half_pooling(), VOLUME, machines=["T4", "amd-epyc-2-core"])
    assert [row.machine for row in found.rows] == ["Tesla T4"]
    lacking = "the CPU has no aten::avg_pool3d for float16 (layer '1'): use float32"
    assert found.notes == (f"cpu of amd-epyc-2-core left out: {lacking}",)
    with pytest.raises(PlacerError, match=r"no machine could be priced: .*the CPU has no aten::avg_pool3d"):
        placer.fleet(half_pooling(), VOLUME, machines=["amd-epyc-2-core"])


@pytest.mark.usefixtures("calibrated")
def test_a_machine_whose_cpu_cannot_run_it_is_told_which_gpus_could() -> None:
    explanation = placer.explain(half_pooling(), VOLUME)
    assert all("@" in name for name in explanation.devices)
    told = "cpu is left out: the CPU has no aten::avg_pool3d for float16 (layer '1'): use float32"
    assert told in explanation.notes
    assert told in explanation.decision.reason
    assert told in explanation.to_text(width=1000, full=True)
    with pytest.raises(PlacerError, match="no device can run it; cpu is left out: the CPU has no aten::avg_pool3d"):
        placer.explain(half_pooling(), VOLUME, what_if=())
    with pytest.warns(placer.PlacerWarning, match="the CPU has no aten::avg_pool3d for float16"):
        assert placer.choose(half_pooling(), VOLUME).confidence is None


# --- ops of quantized weights -----------------------------------------------------------------------------------------


def test_packed_weights_are_seen_by_their_modules_and_ops() -> None:
    weight = torch.quantize_per_tensor(torch.randn(4, 8), 0.1, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, None)

    class Own(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return torch.ops.quantized.linear_dynamic(x, packed)

    in_its_layout = bound([mkldnn.to_mkldnn(net().eval())])
    assert in_its_layout is not None
    assert in_its_layout.why == "layer '0' (MkldnnLinear) is packed for the CPU: choose before that"
    obstacles = Obstacles([Own()], None, [trace(make_workload(Own(), (4, 8), mode="infer"))])
    assert obstacles.bound is None
    assert obstacles.on("cpu") is None
    for device in ("cuda", "mps"):
        assert obstacles.on(device) == (
            f"{device} has no quantized::linear_dynamic, which is for the CPU: give the float model"
        )


# --- flags of optimizers ----------------------------------------------------------------------------------------------


class Own(torch.optim.Optimizer):
    """One whose flag means what its own code says."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "capturable": True})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("make", "lacking"),
    [
        (
            lambda p: torch.optim.Adam(p, capturable=True),
            {"cpu": "Adam has capturable=True", "mps": "Adam has capturable"},
        ),
        (lambda p: torch.optim.SGD(p, fused=True), {"xla": "SGD has fused=True"}),
        (lambda p: torch.optim.Adam(p), {}),
        (Own, {}),
    ],
)
def test_an_optimizer_exists_where_torch_has_its_update(make: Callable[[Any], Any], lacking: dict[str, str]) -> None:
    model = net()
    workload = make_workload(model, (4, 8), mode="train", optimizer=make(model.parameters()))
    before = Obstacles([model], workload.optimizer)
    both = [before] if isinstance(workload.optimizer, Own) else [before, Obstacles([model], None, [trace(workload)])]
    for obstacles in both:
        for device in ("cpu", "cuda", "cuda:1", "mps", "xla"):
            why = obstacles.on(device)
            assert (why or "").startswith(lacking.get(device, "")), device
            assert (why is None) == (device not in lacking), device


# --- models that are bound to a device --------------------------------------------------------------------------------


class Literal(nn.Module):
    """Multiplies by a number, and adds a vector where it is given one."""

    def __init__(self, *vector: float) -> None:
        super().__init__()
        self.vector = vector

    def forward(self, x: Tensor) -> Tensor:
        y = x * torch.tensor(2.0)
        return y + torch.tensor(self.vector) if self.vector else y


class Cast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float64)


def traced(model: nn.Module, *shape: int) -> nn.Module:
    return torch.jit.trace(model.eval(), torch.ones(shape))


def exported(model: nn.Module) -> nn.Module:
    return torch.export.export(model.eval(), (torch.ones(2, 3),)).module()


def optimized(model: nn.Module) -> nn.Module:
    return torch.jit.optimize_for_inference(torch.jit.script(model.eval()))


@pytest.mark.parametrize(
    ("make", "is_bound"),
    [
        (lambda: optimized(nn.Conv2d(3, 4, 3)), True),  # its weights have the layout of MKL-DNN
        (lambda: nn.Sequential(nn.ReLU(), torch.jit.freeze(torch.jit.script(nn.Linear(3, 2).eval()))), True),
        (lambda: traced(nn.LSTM(3, 3), 2, 2, 3), True),  # it makes zeros for its first state
        (lambda: traced(Literal(1.0, 2.0, 3.0), 2, 3), True),
        (lambda: traced(Literal(), 2, 3), False),
        (lambda: torch.jit.script(nn.LSTM(3, 3)), False),
        (lambda: exported(Literal(1.0, 2.0, 3.0)), True),
        (lambda: exported(Literal()), False),
        (lambda: exported(Cast()), True),  # torch checks that the tensor is where it was
    ],
)
def test_a_graph_is_bound_where_it_names_a_device(make: Callable[[], nn.Module], is_bound: bool) -> None:
    found = bound([make()])
    assert (found is not None) == is_bound
    if found is not None:
        assert found.home == "cpu"
        assert "move the model first" in found.why


def test_the_device_that_a_graph_names_is_its_home() -> None:
    program = exported(nn.Sequential(nn.Linear(3, 2), Cast()))
    for node in program.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda:1")}
    obstacles = Obstacles([program])
    assert [device for device in ("cpu", "cuda", "cuda:1") if obstacles.on(device) is None] == ["cuda:1"]
    # Of another machine it is the kind that counts.
    assert [device for device in ("cpu", "cuda", "mps") if obstacles.on(device, here=False) is None] == ["cuda"]


def test_data_parallel_needs_its_weights_on_its_first_gpu() -> None:
    model = nn.Sequential(nn.DataParallel(net()), nn.ReLU())
    assert bound([model]) is None  # without a GPU it is its module
    model[0].device_ids, model[0].src_device_obj = [1, 0], torch.device("cuda:1")
    obstacles = Obstacles([model])
    assert [device for device in ("cpu", "cuda", "cuda:1") if obstacles.on(device) is None] == ["cuda:1"]
    assert "layer '0' (DataParallel) needs its weights on cuda:1" in str(obstacles.on("cpu"))
    found = trace(make_workload(model, (4, 8), mode="train"))
    assert "DataParallel shares a batch out to 2 GPUs; predicted is one with all of it" in found.notes
    assert {call.layer for call in found.calls} >= {"0.module.0", "1"}
    assert model[0].device_ids == [1, 0]
