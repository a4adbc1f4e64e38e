"""What traces, exports, compiles, profiles or inspects a script finds the same under ``placer run``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

BEGIN = """
import collections, copy, resource, sys, traceback
import torch
from torch import nn

def new():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))

x = torch.ones(3, 8)
"""

#: What each makes of a model that it is the first to call.
RECORDERS = {
    "jit.trace": "print(torch.jit.trace(new(), x).graph)",
    "jit.script": "print(torch.jit.script(new()).graph)",
    "export, strict": "print(torch.export.export(new(), (x,), strict=True).graph)",
    "export": "print(torch.export.export(new(), (x,), strict=False).graph)",
    "fx": "print(torch.fx.symbolic_trace(new()).graph)",
    "make_fx": """
from torch.fx.experimental.proxy_tensor import make_fx
for mode in ("real", "fake", "symbolic"):
    print(make_fx(new(), tracing_mode=mode, _allow_non_fake_inputs=True)(x).graph)
""",
    "fake tensors": """
from torch._subclasses import FakeTensorMode
with FakeTensorMode(allow_non_fake_inputs=True):
    print(new()(x).shape)
""",
    "transforms": """
model = new()
weights = dict(model.named_parameters())
def loss(weights, row):
    return torch.func.functional_call(model, weights, row).sum()
print(torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, x)["0.weight"].sum())
print(torch.func.jvp(new(), (x,), (x,))[1].sum())
""",
    "counting": """
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False) as counter:
    new()(x).sum().backward()
print(counter.get_total_flops())
""",
    "function mode": """
class Names(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        print(torch.overrides.resolve_name(function))
        return function(*args, **(kwargs or {}))
model = new()
with Names():
    model(x)
""",
    "profiler": """
def step(model, optimizer):
    model(x).sum().backward()
    optimizer.step()
model = new()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for profiled in range(2):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step(model, optimizer)
    names = [event.name for event in profile.events()]
    print(len(names), sorted(collections.Counter(names).items()))
""",
    "error": """
def broken():
    new()(torch.ones(3, 9))
try:
    broken()
except RuntimeError:
    traceback.print_exc(file=sys.stdout)
""",
}
COMPILERS = {
    "compile": """
from torch._dynamo.testing import CompileCounter
def step(model, optimizer):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
for hooked in (False, True):
    counter = CompileCounter()
    model = new()
    if hooked:
        model[0].register_forward_hook(lambda *given: None)
    compiled = torch.compile(model, backend=counter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(150):
        step(compiled, optimizer)
    print(hooked, counter.frame_count, counter.op_count)
counter = CompileCounter()
model = new()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
whole = torch.compile(step, backend=counter)
for _ in range(3):
    whole(model, optimizer)
print(counter.frame_count, counter.op_count, dict(torch._dynamo.utils.counters["graph_break"]).keys())
counter = CompileCounter()
update = torch.compile(optimizer.step, backend=counter)
model(x).sum().backward()
update()
print(counter.frame_count, counter.op_count)
""",
}
OTHERS = {
    "onnx": """
import io
file = io.BytesIO()
torch.onnx.export(new(), (x,), file, dynamo=False)
print(len(file.getvalue()))
""",
    "tensorboard": """
import tempfile
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter(tempfile.mkdtemp()) as writer:
    writer.add_graph(new(), x)
print("added")
""",
}


#: What a script of each does, by title.
PROGRAMS = {"recorders": RECORDERS, "compilers": COMPILERS}
PROGRAMS |= {package: {package: source} for package, source in OTHERS.items()}


def both(python: Run, tmp_path: Path, source: str) -> tuple[str, str, str]:
    """What a script prints without and with placer, and placer's report. It ends well, or the same way."""
    script = tmp_path / "script.py"
    script.write_text(BEGIN + source)
    plain = python(str(script))
    watched = python("-m", "placer", "run", "--profile", "intel-xeon-avx512-2-core", str(script))
    assert plain.returncode == 0, plain.stderr
    assert watched.returncode == 0, watched.stderr
    return plain.stdout, watched.stdout, watched.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_who_records_compiles_or_exports_a_model_finds_what_it_is(name: str, python: Run, tmp_path: Path) -> None:
    if name in OTHERS:
        pytest.importorskip(name)
    sources = PROGRAMS[name]
    plain, watched, report = both(python, tmp_path, "".join(f"print('--- {t}')\n{s}\n" for t, s in sources.items()))
    assert re.findall(r"^--- (.+)$", plain, re.MULTILINE) == list(sources)
    assert watched == plain
    assert "watching ended" not in report
    if name == "recorders":
        assert "Sequential" in report
    elif name == "compilers":
        assert re.search(r"^ *Sequential +300 ", report, re.MULTILINE), report
        assert re.search(r"^Sequential \(one of \d\)", report, re.MULTILINE), report


HOLDS_MUCH = """
class Table:
    copied = []
    def __init__(self):
        self.rows = bytearray(SIZE)
    def __deepcopy__(self, memo):
        self.copied.append("deep")
        return self
    def __copy__(self):
        self.copied.append("flat")
        return self
    def __reduce__(self):
        self.copied.append("pickled")
        return Table, ()

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.table = nn.Linear(8, 2), Table()
    def forward(self, x):
        return self.layer(x)

def main():
    model = Model().eval()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        model(x)
    print(Table.copied, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < SIZE // 2)
main()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="without a child a model is copied, as choose does")
def test_nothing_of_a_model_is_copied(python: Run, tmp_path: Path) -> None:
    plain, watched, report = both(python, tmp_path, f"SIZE = 200_000_000\n{HOLDS_MUCH}")
    assert watched == plain == "[] True\n"
    assert re.search(r"^ *Model +- +cpu", report, re.MULTILINE), report


FORKS = """
import os
model = new().eval()
reading, writing = os.pipe()
pid = os.fork()
model(x)
if pid == 0:
    from placer.run import watcher
    import gc
    seen = [each for each in gc.get_objects() if type(each) is watcher.WatchedModel]
    os.write(writing, str(len(seen)).encode())
    os._exit(0)
os.waitpid(pid, 0)
print(os.read(reading, 9))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_process_that_the_script_forks_is_not_watched(python: Run, tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(BEGIN + FORKS)
    done = python("-m", "placer", "run", "--profile", "intel-xeon-avx512-2-core", str(script))
    assert done.stdout == "b'0'\n", done.stderr
    assert "Sequential" in done.stderr
