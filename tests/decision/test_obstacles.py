"""What cannot run where, for devices of this machine, of other machines and of the catalog, in every answer alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from forwards import module
from torch import nn
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
@pytest.mark.parametrize("what_if", [None, ["RTX 4090", "H100"]])
def test_no_gpu_is_advised_for_what_cannot_run_on_one(what_if: Any) -> None:
    explanation = placer.explain(quantized(), (65_536, 8), devices=None if what_if is None else "cpu", what_if=what_if)
    assert (list(explanation.devices), explanation.turn) == (["cpu"], None)
    assert all(row.device == "cpu" for row in explanation.advice)
    assert any(QUANTIZED in note for note in explanation.notes)
    assert QUANTIZED in explanation.to_text(width=1000, full=True)


LACKING = "the CPU has no aten::avg_pool3d for float16 (layer '1'): use float32"


@pytest.mark.usefixtures("calibrated")
def test_a_fleet_ranks_no_machine_that_cannot_run_it() -> None:
    machines = ["T4", "amd-epyc-2-core"]
    for model, batch, able, note in (
        (quantized(), (65_536, 8), "amd-epyc-2-core", f"cuda of Tesla T4 left out: {QUANTIZED}"),
        (half_pooling(), VOLUME, "Tesla T4", f"cpu of amd-epyc-2-core left out: {LACKING}"),
    ):
        fleet = placer.fleet(model, batch, machines=machines)
        assert ([row.machine for row in fleet.rows], fleet.notes) == ([able], (note,))
    with pytest.raises(PlacerError, match=r"no machine could be priced: .*the CPU has no aten::avg_pool3d"):
        placer.fleet(half_pooling(), VOLUME, machines=["amd-epyc-2-core"])


@pytest.mark.usefixtures("calibrated")
def test_a_machine_whose_cpu_cannot_run_it_is_told_which_gpus_could() -> None:
    explanation = placer.explain(half_pooling(), VOLUME)
    assert all("@" in name for name in explanation.devices)
    assert f"cpu is left out: {LACKING}" in explanation.decision.reason
    assert f"cpu is left out: {LACKING}" in explanation.to_text(width=1000, full=True)
    with pytest.raises(PlacerError, match="no device can run it; cpu is left out: the CPU has no aten::avg_pool3d"):
        placer.explain(half_pooling(), VOLUME, what_if=())
    with pytest.warns(placer.PlacerWarning, match="the CPU has no aten::avg_pool3d for float16"):
        assert placer.choose(half_pooling(), VOLUME).confidence is None


# --- ops of quantized weights -----------------------------------------------------------------------------------------


def test_packed_weights_are_seen_by_their_modules_and_ops() -> None:
    weight = torch.quantize_per_tensor(torch.randn(4, 8), 0.1, 0, torch.qint8)
    packed = torch.ops.quantized.linear_prepack(weight, None)

    own = module(lambda self, x: torch.ops.quantized.linear_dynamic(x, packed))
    in_its_layout = bound([mkldnn.to_mkldnn(net().eval())])
    assert in_its_layout.why == "layer '0' (MkldnnLinear) is packed for the CPU: choose before that"
    obstacles = Obstacles([own], None, [trace(make_workload(own, (4, 8), mode="infer"))])
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


def test_an_optimizer_exists_where_torch_has_its_update() -> None:
    model = net()
    devices = ("cpu", "cuda", "cuda:1", "mps", "xla")
    for optimizer, flag, lacking in (
        (torch.optim.Adam(model.parameters(), capturable=True), "Adam has capturable=True", {"cpu", "mps"}),
        (torch.optim.SGD(model.parameters(), fused=True), "SGD has fused=True", {"xla"}),
        (torch.optim.Adam(model.parameters()), "", set()),
        (Own(model.parameters()), "", set()),
    ):
        both = [Obstacles([model], optimizer)]
        if not isinstance(optimizer, Own):
            both.append(
                Obstacles([model], None, [trace(make_workload(model, (4, 8), mode="train", optimizer=optimizer))])
            )
        for obstacles in both:
            reasons = {device: why for device in devices if (why := obstacles.on(device)) is not None}
            assert reasons.keys() == lacking
            assert all(why.startswith(flag) for why in reasons.values())


# --- models that are bound to a device --------------------------------------------------------------------------------


def literal(*vector: float) -> nn.Module:
    """Multiplies by a number, and adds a vector where it is given one."""
    if vector:
        return module(lambda self, x: x * torch.tensor(2.0) + torch.tensor(vector))
    return module(lambda self, x: x * torch.tensor(2.0))


def cast() -> nn.Module:
    return module(lambda self, x: x.to(torch.float64))


def frozen(model: nn.Module) -> nn.Module:
    return torch.jit.freeze(torch.jit.script(model.eval()))


def traced(model: nn.Module, *shape: int) -> nn.Module:
    return torch.jit.trace(model.eval(), torch.ones(shape))


def exported(model: nn.Module) -> nn.Module:
    return torch.export.export(model.eval(), (torch.ones(2, 3),)).module()


@pytest.mark.parametrize(
    ("make", "is_bound"),
    [
        (lambda: nn.Sequential(nn.ReLU(), frozen(nn.Linear(3, 2))), True),
        (lambda: torch.jit.optimize_for_inference(frozen(nn.Conv2d(3, 4, 3))), True),  # in the layout of MKL-DNN
        (lambda: traced(nn.LSTM(3, 3), 2, 2, 3), True),  # it makes zeros for its first state
        (lambda: traced(literal(), 2, 3), False),
        (lambda: torch.jit.script(nn.LSTM(3, 3)), False),
        (lambda: exported(literal(1.0, 2.0, 3.0)), True),
        (lambda: exported(literal()), False),
        (lambda: exported(cast()), True),  # torch checks that the tensor is where it was
    ],
)
def test_a_graph_is_bound_where_it_names_a_device(make: Callable[[], nn.Module], is_bound: bool) -> None:
    only = bound([make()])
    assert (only is not None) == is_bound
    assert only is None or (only.home == "cpu" and "move the model first" in only.why)


def test_the_device_that_a_graph_names_is_its_home() -> None:
    program = exported(nn.Sequential(nn.Linear(3, 2), cast()))
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
    step = trace(make_workload(model, (4, 8), mode="train"))
    assert "DataParallel shares a batch out to 2 GPUs; predicted is one with all of it" in step.notes
