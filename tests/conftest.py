"""What every test gets: an empty PLACER_HOME, its own random numbers, and torch's settings put back afterwards."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from placer import machine, profile
from placer.pricing import speeds
from placer.pricing.predict import source_shares
from placer.pricing.prediction import Prediction, PricedTrace
from placer.pricing.speeds import CpuSpeeds
from placer.profile.profile import SCHEMA, Device, Profile
from placer.tracing.trace_data import OpCall, TensorSpec, Trace

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # tests in the background of a shell: Ctrl-C is for tests, too
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _read_once() -> Iterator[None]:
    """An estimate reads this CPU's speed in a new process where its data folder is new, as it is in every test.

    Here it is read once for each number of threads, and counts as quiet, whatever runs beside the tests.
    """
    read_apart = speeds.read_apart

    @cache
    def read(facts: str, threads: int) -> CpuSpeeds:
        return replace(read_apart(json.loads(facts), threads), doubt=0.0, note="")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speeds, "read_apart", lambda facts, threads: read(json.dumps(dict(facts)), threads))
        yield


@pytest.fixture(scope="session")
def fits_are_kept(pytestconfig: pytest.Config) -> Iterator[None]:
    """Fits of records' journals lie in pytest's cache until the code changes: a fit takes ten seconds."""
    assert pytestconfig.cache is not None
    folder = Path(pytestconfig.cache.mkdir("placer-fits"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("placer.calibration.validation.recorded.fits_folder", lambda: folder)
        yield


@pytest.fixture(scope="session")
def _homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("placer-homes")


@pytest.fixture(scope="session", autouse=True)
def _calibrated_alone() -> Iterator[None]:
    """Whatever runs beside the tests, a calibration in them counts as undisturbed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "others_share", lambda began, ended: 0.0)
        yield


@pytest.fixture(autouse=True)
def placer_home(_homes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of the test's own: no test reads or writes the user's profiles and history."""
    home = Path(tempfile.mkdtemp(dir=_homes))  # pytest's own counts all folders there are, for each new one
    monkeypatch.setenv("PLACER_HOME", str(home))
    for name in ("PLACER_DEVICE", "PLACER_QUIET", "PLACER_STRICT"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(autouse=True)
def _isolation() -> Iterator[None]:
    """The same random numbers in any order of tests; torch's settings, signals and the environment restored."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - scikit-learn and torch_geometric still draw from the global generator
    torch.manual_seed(0)
    threads, dtype, grad = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    precision = torch.get_float32_matmul_precision()
    with process_put_back():
        yield
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    if torch.get_float32_matmul_precision() != precision:
        torch.set_float32_matmul_precision(precision)
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)


@pytest.fixture(autouse=True, scope="module")
def _each_file() -> Iterator[None]:
    """The collector passes over what was there before: libraries, and thousands of collected tests.

    What the file before has left is given back to the system: a fork takes time for every page that a process holds.
    And the environment and the signals are put back afterwards, whatever a library has set. What the file leaves
    unclosed is collected while its own filters of warnings still hold: Ray leaves files open.
    """
    gc.freeze()
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
    with process_put_back():
        yield
    gc.collect()


@contextmanager
def process_put_back() -> Iterator[None]:
    """Afterwards, the environment and the signal handlers are as before.

    Ray and torchrun's agent leave handlers of SIGTERM: processes that are forked later would not end by it. The alarm
    is left alone, as pytest-timeout ends a test by it.
    """
    environment = dict(os.environ)
    numbers = signal.valid_signals() - {getattr(signal, "SIGALRM", None)}
    handlers = {number: signal.getsignal(number) for number in numbers}
    yield
    if os.environ != environment:
        os.environ.clear()
        os.environ.update(environment)
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) is not handler:  # None: not Python's own
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test first, so that no process is left alone with it.

    Tests marked ``gpu`` run where torch sees an accelerator, and are skipped, visibly, elsewhere.
    """
    items.sort(key=lambda item: item.path.name != "test_simulated_accelerator.py")
    if machine.accelerators():
        return
    skip = pytest.mark.skip(reason="needs an accelerator")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)


# Hand-made stages, for tests of what comes after them.


@pytest.fixture
def make_prediction() -> Callable[..., Prediction]:
    """A Prediction of a two-layer network; seconds by op call, and everything else by name."""

    def make(device: str = "cpu", step: float = 1e-3, **values: Any) -> Prediction:
        spec = TensorSpec((4, 4), (4, 1), "float32")
        calls = (
            OpCall("aten::addmm", (spec,), (spec,), phase="forward", layer="block.first"),
            OpCall("aten::relu", (spec,), (spec,), phase="forward", layer="block"),
            OpCall("aten::addmm", (spec,), (spec,), phase="forward", layer="last"),
            OpCall("aten::mm", (spec,), (spec,), phase="backward", layer="block.first"),
            OpCall("optimizer::Adam", (spec,), (), phase="optimizer", layer="last"),
        )
        compute = values.pop("compute", step)
        weights = (0.4, 0.005, 0.1, 0.3, 0.195)
        trace = Trace(calls, "train", (spec,), (), (spec,), (spec,), optimizer="Adam")
        priced = PricedTrace(
            trace=trace,
            device=device,
            threads=2,
            families=("matmul", "elementwise", "matmul", "matmul", "optimizer"),
            seconds=tuple(weight * compute for weight in weights),
            host_seconds=(0.0,) * 5,
            sigma=(0.1,) * 5,
            sources=values.pop("sources", ("calibrated",) * 5),
            counts={"step": 1.0, "training_step": 1.0},
        )
        components = values.pop("components", {"compute": compute, "dispatch": step - compute})
        steps = values.pop("steps", None)
        once = values.pop("one_time_seconds", 0.0)
        values.setdefault("one_time", {"context": once} if once else {})
        defaults = {
            "low": step / 1.2,
            "high": step * 1.2,
            "total_seconds": None if steps is None else once + steps * step,
            "peak_memory_bytes": 1_000_000,
            "fits": True,
            "coverage": 1.0,
            "sources": source_shares(priced),
        }
        return Prediction(
            device=device,
            threads=2,
            step_seconds=step,
            one_time_seconds=once,
            components=components,
            priced=priced,
            **{**defaults, **values},
        )

    return make


@pytest.fixture
def handmade_profile() -> Profile:
    """This machine, as if calibrated: physical floors only, a fast CPU, and an accelerator that is slow to launch."""
    cpu = Device(
        "cpu",
        torch.get_num_threads(),
        {
            "dispatch_seconds": 2e-6,
            "flops/float32": 5e10,
            "bytes_per_second": 1e10,
        },
        {},
        {},
        {"base": 0.05, "ops": 0.0},
    )
    cuda = Device(
        "cuda",
        1,
        {
            "dispatch_seconds": 2e-6,
            "flops/float32": 2e13,
            "bytes_per_second": 1e12,
            "launch_seconds": 5e-6,
            "issue_seconds": 5e-6,
            "sync_seconds": 1e-5,
            "context_seconds": 1.0,
            "first_call_seconds": 1e-3,
            "copy/h2d/pageable/bytes_per_second": 5e9,
            "copy/h2d/pageable/seconds_per_tensor": 1e-5,
            "copy/d2h/pageable/bytes_per_second": 5e9,
            "copy/d2h/pageable/seconds_per_tensor": 1e-5,
        },
        {},
        {"forward_op": 1e-5},
        {"base": 0.05, "ops": 0.0},
    )
    return Profile(
        schema=SCHEMA,
        created="2026-01-02T03:04:05+00:00",
        fingerprint=machine.fingerprint(),
        fits=(cpu, cuda),
        noise={},
        warnings=(),
        complete=True,
        seconds=10.0,
    )


@pytest.fixture
def calibrated(handmade_profile: Profile) -> Profile:
    """The hand-made profile in this machine's place."""
    profile.save(handmade_profile)
    return profile.load()
