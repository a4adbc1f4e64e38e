"""The contract of ``choose`` and ``explain``: each promise has a test named after it."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from competing import compete
from torch import nn
from torch.utils.data import DataLoader, Dataset

import placer
from placer import machine, profile
from placer.decision import Table, history, pipeline
from placer.errors import PlacerError, PlacerWarning, ProfileError, TraceError
from placer.pricing.prediction import Prediction
from placer.profile.profile import Profile


@pytest.fixture
def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(84, 32), nn.BatchNorm1d(32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 3))


def choose(*args: Any, **kwargs: Any) -> placer.Placement:
    """On the CPU, whatever else is here, and without a warning: every prediction must come from the profile."""
    kwargs.setdefault("devices", ["cpu"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return placer.choose(*args, **kwargs)


def names(function: Callable[..., Any]) -> list[str]:
    return [
        f"{p.name}={p.default!r}" if p.default is not p.empty else p.name
        for p in inspect.signature(function).parameters.values()
    ]


# Signatures are locked: others build on them.


def test_signatures_are_those_of_the_contract() -> None:
    workload = ["model", "batch=None", "batch_shape=None", "mode=None", "loss=None", "target=None", "optimizer=None",
                "steps=None", "data='host'", "outputs=None", "autocast=None", "modules=None", "devices=None",
                "profile=None"]  # fmt: skip
    options = f"options={placer.Options()!r}"
    assert names(placer.choose) == [*workload, "move=True", options]
    assert names(placer.explain) == [*workload, "what_if=None", options]
    rare = ["threads='keep'", "measure='never'", "objective='time'", "price=None", "watts=None"]
    assert names(placer.Options) == rare
    assert names(placer.calibrate) == ["budget=60.0", "devices=None", "progress=True", "path=None"]
    assert names(placer.load_profile) == ["source=None"]
    for function in (placer.choose, placer.explain):
        kinds = [p.kind for p in inspect.signature(function).parameters.values()]
        assert kinds[:2] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 2
        assert set(kinds[2:]) == {inspect.Parameter.KEYWORD_ONLY}


# What comes back.


def test_a_placement_has_everything_the_contract_names(model: nn.Module, calibrated: Profile) -> None:
    placement = choose(model, (32, 84), steps=100)
    assert placement.device == torch.device("cpu")
    assert placement.predictions[placement.device] is placement.predictions["cpu"]
    assert placement.confidence == 1.0
    assert placement.threads == torch.get_num_threads()
    assert placement.reason.startswith("cpu: there is no other device to choose")
    prediction = placement.predictions["cpu"]
    assert 0 < prediction.low < prediction.step_seconds < prediction.high
    assert prediction.total_seconds == pytest.approx(prediction.one_time_seconds + 100 * prediction.step_seconds)
    assert sum(prediction.components.values()) == pytest.approx(prediction.step_seconds)
    assert prediction.peak_memory_bytes > 84 * 32 * 4
    assert prediction.fits
    assert 0.0 <= prediction.coverage <= 1.0
    assert placement.decision.device == "cpu"
    explanation = placement.explain()
    assert explanation.to_dict()["choice"] == "cpu"
    assert explanation.devices["cpu"].step_seconds == prediction.step_seconds
    with placement.step():
        pass
    assert placement.provenance == prediction.provenance == "calibrated"
    assert prediction is placement.predictions.get("cpu:0")
    assert placement.predictions.get(torch.device("cuda")) is None
    with pytest.raises(KeyError):
        placement.predictions["warp drive"]


def test_every_decision_is_recorded_where_that_can_be_and_no_explanation(
    model: nn.Module, calibrated: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert placer.explain(model, (32, 84), mode="infer", devices=["cpu"]).workload["mode"] == "infer"
    assert history.last() == []
    first, second = choose(model, (32, 84)), choose(model, (32, 84))
    assert first.predictions["cpu"].step_seconds == second.predictions["cpu"].step_seconds
    entries = history.last(10)
    assert [entry["kind"] for entry in entries] == ["decision"] * 2
    recorded = placer.Explanation.from_dict(entries[0]["explanation"])
    assert (recorded.decision.device, recorded.layers, recorded.ops) == ("cpu", (), ())  # rows, not a page
    assert recorded.devices["cpu"].step_seconds == first.predictions["cpu"].step_seconds
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PLACER_HOME", str(tmp_path / "file" / "home"))
    with pytest.warns(PlacerWarning, match="decisions and step times are not kept for later runs: cannot write"):
        assert placer.choose(model, (32, 84), devices="cpu", profile=calibrated).confidence == 1.0


@pytest.mark.parametrize(
    ("owner", "name", "warned", "confidence"),
    [
        (placer.Explanation, "of_rows", "not kept for later runs: .* RuntimeError: odd", 1.0),
        (Table, "decide", "placed on cpu without a prediction: .* RuntimeError: odd", None),
    ],
)
def test_a_fault_of_placer_costs_a_line_of_the_history_or_the_prediction_and_nothing_more(
    owner: type,
    name: str,
    warned: str,
    confidence: float | None,
    model: nn.Module,
    calibrated: Profile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(owner, name, broken)
    with pytest.warns(PlacerWarning, match=warned):
        placement = placer.choose(model, (32, 84), devices="cpu")
    assert (str(placement.device), placement.confidence) == ("cpu", confidence)
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises((RuntimeError, placer.PlacerError), match="odd"):
        placer.choose(model, (16, 84), devices="cpu")


def test_threads_tune_takes_the_best_calibrated_count(model: nn.Module, handmade_profile: Profile) -> None:
    slow, before = handmade_profile.fit("cpu"), torch.get_num_threads()
    rates = {name: 2 * value for name, value in slow.rates.items()} | {"dispatch_seconds": 1e-7}
    fast = dataclasses.replace(slow, threads=before + 1, rates=rates)
    profile.save(dataclasses.replace(handmade_profile, fits=(slow, fast)))
    tune = placer.Options(threads="tune")
    kept = choose(model, (32, 84))
    assert (kept.threads, torch.get_num_threads(), kept.decision.thread_options) == (before, before, ())
    answered = choose(model, (32, 84), options=tune, move=False)
    assert (answered.threads, torch.get_num_threads()) == (before + 1, before)
    assert f", with {before + 1} threads: with {before} a step would take" in answered.reason
    options = [(before, True), (before + 1, False)]
    assert [(option.threads, option.current) for option in answered.decision.thread_options] == options
    explanation = placer.explain(model, (32, 84), options=tune)
    assert "A step on the CPU by number of threads" in explanation.to_text(full=True)
    assert [(row["threads"], row["current"]) for row in explanation.to_dict()["thread_counts"]] == options
    assert placer.Explanation.from_dict(explanation.to_dict()) == explanation
    tuned = choose(model, (32, 84), options=tune)
    assert (tuned.threads, torch.get_num_threads()) == (before + 1, before + 1)
    assert tuned.predictions["cpu"].step_seconds < kept.predictions["cpu"].step_seconds
    assert "as now" in choose(model, (32, 84), options=tune).reason


def test_what_if_adds_a_gpu_of_another_profile_or_of_the_catalog(
    model: nn.Module, calibrated: Profile, tmp_path: Path
) -> None:
    other = profile.save(calibrated, tmp_path / "server.json")
    assert set(placer.explain(model, (32, 84), profile=other).devices) == {"cpu", "cuda"}
    assert set(placer.explain(model, (32, 84), profile=calibrated, devices=["cuda"]).devices) == {"cuda"}
    beside = placer.explain(model, (32, 84), devices=["cpu"], what_if=str(other))
    assert list(beside.devices) == ["cpu", "cuda@server"]
    assert any("not on this machine" in note for note in beside.notes)
    explanation = placer.explain(model, (32, 84), devices=["cpu"], what_if="RTX 4090")
    assert list(explanation.devices) == ["cpu", "cuda@RTX 4090"]
    assert explanation.devices["cpu"].provenance == "calibrated"
    assert explanation.devices["cuda@RTX 4090"].provenance in ("published", "data sheet")
    assert any(note.startswith("NVIDIA GeForce RTX 4090: from ") for note in explanation.notes)
    with pytest.raises(placer.UnknownGPU, match="RTX 4090"):
        placer.explain(model, (32, 84), devices=["cpu"], what_if="RTX 4099")


def test_a_gpus_name_loads_its_profile(handmade_profile: Profile) -> None:
    found = placer.load_profile("NVIDIA T4")
    assert (found.name, found.devices(), found.fit("cuda").reference) == ("Tesla T4", ("cuda",), "")
    profile.save(handmade_profile)
    assert placer.load_profile("NVIDIA T4").fit("cuda").reference == machine.cpu_model()
    with pytest.raises(placer.UnknownGPU, match="placer gpus"):
        placer.load_profile("no GPU at all")
    with pytest.raises(TypeError, match="profile must be"):
        placer.load_profile(7)  # type: ignore[arg-type]


# choose never breaks a training script: one warning, and the conventional rule.


class Bad(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no luck")


def broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize(
    ("case", "said", "error"),
    [
        ("step", "no luck", TraceError),
        ("pricing", "ZeroDivisionError: a bug; to see where, run with PLACER_STRICT=1", PlacerError),
        ("device", "cpu is not calibrated", ProfileError),
    ],
)
def test_what_cannot_be_predicted_falls_back(
    case: str, said: str, error: type[Exception], calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Bad() if case == "step" else nn.Linear(84, 3)
    if case == "pricing":
        monkeypatch.setattr(pipeline, "predict", broken)
    elif case == "device":
        profile.save(dataclasses.replace(calibrated, fits=calibrated.fits[1:]))
    with pytest.warns(PlacerWarning, match=said) as caught:
        placement = placer.choose(net, (32, 84), devices=["cpu"])
    assert placement.confidence is None
    assert [w.filename for w in caught] == [__file__]
    with pytest.raises(PlacerError, match="no prediction to explain: cpu"):
        placement.explain()
    monkeypatch.setenv("PLACER_STRICT", "1")
    for function in (placer.choose, placer.explain):
        with pytest.raises(error, match=said.partition(";")[0]):
            function(net, (32, 84), devices=["cpu"])


def test_a_torch_that_was_never_tried_is_told_where_nothing_is_predicted(
    calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version, told in (("2.6.0+cu124", 1), ("2.9.1+cpu", 0), ("2.10.0", 0)):
        monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
        with pytest.warns(PlacerWarning, match="no luck") as caught:
            placer.choose(Bad(), (3, 4), devices="cpu")
        assert str(caught[0].message).count(f"torch {version} is older than {machine.OLDEST_TORCH}, the") == told


@pytest.mark.parametrize(
    ("wrong", "says", "error"),
    [
        ("missing", "an estimate .* run: placer calibrate", placer.ProfileMissing),
        ("stale", r"torch: 1\.0 -> .*run: placer calibrate", placer.ProfileStale),
        ("damaged", r"\.json", placer.ProfileDamaged),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_warning_with_the_next_command(
    wrong: str,
    says: str,
    error: type[Exception],
    model: nn.Module,
    handmade_profile: Profile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if wrong != "missing":
        old = {**handmade_profile.fingerprint, "torch": "1.0"}
        path = profile.save(dataclasses.replace(handmade_profile, fingerprint=old))
        if wrong == "damaged":
            path.write_text('{"format": "placer machine profile", "schema"')
    with pytest.warns(PlacerWarning, match=says) as caught:
        placement, _ = placer.choose(model, (32, 84)), placer.choose(model, (64, 84))
    assert [w.filename for w in caught] == [__file__]
    assert placement.provenance == "published"
    monkeypatch.setenv("PLACER_STRICT", "1")
    for function in (placer.choose, placer.explain):
        with pytest.raises(error):
            function(model, (32, 84))


# A wrong argument always raises at once.


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"mode": "eval"}, ValueError, "mode must be"),
        ({"options": "tune"}, TypeError, "options must be a placer.Options, not 'tune'"),
        ({"devices": []}, ValueError, "devices is empty"),
        ({"devices": ["warp drive"]}, ValueError, "'warp drive' is not a device"),
        ({"devices": 3}, TypeError, "devices must be"),
        ({"devices": [3]}, TypeError, "a device is a name"),
        ({"devices": ["cuda:77"]}, ValueError, "'cuda:77' is not on this machine; accepted: cpu"),
        ({"profile": 3}, TypeError, "profile must be"),
        ({"profile": "nope"}, ValueError, r"no profile is called 'nope' \(there is: .*amd-epyc.*placer profile list"),
        ({"profile": "no pe!"}, ValueError, "no profile is called 'no pe!'"),
        ({"move": "no"}, TypeError, "move must be True or False, not 'no'"),
        ({"loss": nn.MSELoss, "target": (32, 3)}, TypeError, r"not the class MSELoss: pass MSELoss\(\.\.\.\)"),
        ({"batch_shape": (32, 84)}, TypeError, "batch and batch_shape are one argument"),
    ],
)
def test_wrong_arguments_raise_at_once(
    model: nn.Module, calibrated: Profile, arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        placer.choose(model, (32, 84), **arguments)


class Rows(Dataset[torch.Tensor]):
    """Rows of a data set that nobody may walk over."""

    def __init__(self) -> None:
        self.first = torch.zeros(84)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise AssertionError("it was walked over")

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> torch.Tensor:
        raise AssertionError("it was read")


@pytest.mark.parametrize("asked", [placer.choose, placer.explain])
@pytest.mark.parametrize(
    ("batch", "error", "says"),
    [
        ([DataLoader(Rows(), batch_size=32)], TypeError, r"DataLoader; next\(iter\(loader\)\)"),
        (Rows(), TypeError, r"Rows; next\(iter\(loader\)\)"),
        (np.zeros((32, 84)), TypeError, r"not numpy\.ndarray; torch\.from_numpy makes tensors of arrays"),
        ((2**62, 8), ValueError, "is larger than any tensor can be"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_batch_is_refused_in_one_line(
    model: nn.Module, calibrated: Profile, asked: Callable[..., Any], batch: Any, error: type[Exception], says: str
) -> None:
    for arguments in ({"batch": batch}, {"batch_shape": batch}):
        with pytest.raises(error, match=says) as seen:
            asked(model, **arguments)
        assert "\n" not in str(seen.value)


def test_batch_shape_is_batch(model: nn.Module, calibrated: Profile) -> None:
    for batch in ((32, 84), (np.int64(32), np.int64(84)), torch.randn(32, 84)):
        named, usual = choose(model, batch_shape=batch, move=False), choose(model, batch, move=False)
        assert str(named.predictions["cpu"].priced.trace) == str(usual.predictions["cpu"].priced.trace)
        assert placer.explain(model, batch_shape=batch).workload == placer.explain(model, batch).workload
    with pytest.raises(ValueError, match="a Job says what to run"):
        placer.choose(placer.Job([placer.Part("a", model, (4, 84))]), batch_shape=(4, 84))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("function", "arguments", "error", "says"),
    [
        (placer.Options, {"threads": 4}, ValueError, "threads must be 'keep' or 'tune', not 4"),
        (placer.Options, {"measure": "yes"}, ValueError, "measure must be 'never' or 'unsure' or 'always'"),
        (placer.Options, {"objective": "cost"}, ValueError, "needs price"),
        (placer.Options, {"price": 3}, TypeError, "price"),
        (placer.calibrate, {"budget": 0}, ValueError, "a positive number of seconds"),
        (placer.calibrate, {"budget": math.nan}, ValueError, "a positive number of seconds"),
        (placer.calibrate, {"budget": "60"}, TypeError, "a number of seconds, not '60'"),
        (placer.calibrate, {"devices": ["cuda:99"]}, ValueError, "not on this machine"),
        (placer.calibrate, {"progress": "no"}, TypeError, "progress must be True or False, not 'no'"),
    ],
)
def test_options_and_calibrate_check_their_arguments(
    function: Callable[..., Any], arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        function(**arguments)


# measure


@pytest.mark.parametrize(
    ("measure", "slower", "measured"),
    [("never", 1.05, False), ("unsure", 1.05, True), ("unsure", 100.0, False), ("always", 100.0, True)],
)
def test_measure(
    model: nn.Module,
    calibrated: Profile,
    make_prediction: Callable[..., Prediction],
    monkeypatch: pytest.MonkeyPatch,
    measure: str,
    slower: float,
    measured: bool,
) -> None:
    """Two names of the CPU compete. The race runs with the threads that were chosen."""
    now, seen = torch.get_num_threads(), list[int]()
    found = {"cpu": make_prediction("cpu", 1e-3), "cpu:0": make_prediction("cpu:0", slower * 1e-3)}
    compete(monkeypatch, {name: dataclasses.replace(each, threads=now + 1) for name, each in found.items()})

    class Seeing(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            result: torch.Tensor = super().forward(x)
            return result

    options = placer.Options(measure=measure, threads="tune")
    compared = {"loss": nn.MSELoss(), "target": (8, 3)}  # the real step has both
    placement = choose(Seeing(model), (8, 84), **compared, options=options, move=False)
    assert placement.reason.endswith("(measured on cpu and cpu:0)") is measured
    for prediction in placement.predictions.values():
        assert sum(prediction.components.values()) == pytest.approx(prediction.step_seconds)
    assert ("not predicted" in placement.predictions["cpu"].components) is measured
    assert (placement.threads, torch.get_num_threads()) == (now + 1, now)
    assert set(seen) == ({now + 1} if measured else set())
    with pytest.raises(ValueError, match=r"measure needs an nn\.Module"):
        placer.choose(lambda: None, modules=model, options=placer.Options(measure="always"))


# What the loss compares the output with.


@pytest.mark.parametrize("target", [torch.randint(0, 3, (32,)), torch.rand(32, 3), (32, 3)])
def test_a_loss_gets_its_target_which_is_copied_with_the_batch(
    model: nn.Module, handmade_profile: Profile, target: Any
) -> None:
    def explained(**workload: Any) -> placer.Explanation:
        return placer.explain(model, (32, 84), mode="train", profile=handmade_profile, devices=["cuda"], **workload)

    summed, compared = explained(), explained(loss=nn.functional.cross_entropy, target=target)
    assert {"aten::log_softmax", "aten::_log_softmax"} & {row.op for row in compared.ops}
    assert compared.workload["loss_target"]
    assert summed.devices["cuda"].components["copy"] < compared.devices["cuda"].components["copy"]


def test_a_target_by_shape_or_in_the_loss_is_the_same_step(model: nn.Module, calibrated: Profile) -> None:
    def ops(loss: Any, target: Any) -> list[str]:
        placement = choose(model, (8, 84), loss=loss, target=target, move=False)
        return [call.op for call in placement.predictions["cpu"].priced.trace.calls]

    y = torch.rand(8, 3)
    assert ops(nn.MSELoss(), y) == ops(lambda output: nn.functional.mse_loss(output, y), None)
    # A shape is that of the indices of classes.
    assert ops(nn.CrossEntropyLoss(), (8,)) == ops(nn.CrossEntropyLoss(), torch.zeros(8, dtype=torch.int64))


# Every decision is one record.


def test_every_decision_is_one_record(
    model: nn.Module, calibrated: Profile, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="placer")
    placement = choose(model, (32, 84))
    with pytest.warns(PlacerWarning):
        placer.choose(Bad(), (32, 84))
    monkeypatch.setenv("PLACER_DEVICE", "cpu")
    choose(model, (32, 84))
    records: list[Any] = [record for record in caplog.records if record.name == "placer"]
    assert [(record.levelname, record.device) for record in records] == [("INFO", "cpu")] * 3
    first, fallback, forced = records
    assert first.getMessage() == first.reason == placement.reason
    assert first.figures["cpu"]["step_seconds"] == placement.predictions["cpu"].step_seconds
    assert first.figures["cpu"]["provenance"] == "calibrated"
    assert "no luck" in fallback.reason or fallback.reason.startswith("cpu")
    assert forced.getMessage() == "cpu: set by PLACER_DEVICE"
    assert fallback.figures == forced.figures == {}


def test_a_lone_cpu_stays_the_choice_beside_gpus_that_nobody_named(
    model: nn.Module, calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu",))
    found = placer.explain(model, (4096, 84))
    gpus = [name for name in found.devices if name != "cpu"]
    assert [name.partition("@")[2].partition(" 80GB")[0] for name in gpus] == ["Tesla T4", "RTX 4090", "H100"]
    assert (found.decision.device, found.decision.tie) == ("cpu", False)
    assert found.decision.reason.startswith("cpu is the only device here")
    assert all(row.device == "cpu" for row in found.advice)
    named = placer.explain(model, (4096, 84), what_if=["H100"])
    assert named.decision.device == min(named.devices, key=lambda name: named.devices[name].step_seconds)
    assert list(placer.explain(model, (4096, 84), what_if=()).devices) == ["cpu"]
    short = str(placer.explain(model, (8, 84), steps=1))
    assert "these GPUs would take " in short.splitlines()[0]
    assert "0.00×" not in short
    with torch.device("meta"):
        large = nn.Linear(64_000, 64_000).eval()
    text = str(placer.explain(large, (4, 64_000)))
    assert "does not fit" in text
    assert "these GPUs" not in text.splitlines()[0]
    tuned = placer.explain(model, (4096, 84), options=placer.Options(threads="tune")).decision.reason
    assert tuned.index("a step takes") < tuned.index("would take") == tuned.rindex("would take")


@pytest.mark.parametrize("ask", [placer.choose, placer.explain])
def test_compiled_code_asks_as_any_other(ask: Callable[..., Any], model: nn.Module, handmade_profile: Profile) -> None:
    """The compiler follows no call of placer's, and what it was about to compile goes on."""
    answers = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        doubled = x * 2.0
        answers.append(ask(model, (32, 84), profile=handmade_profile, devices=["cpu"]))
        return doubled + 1.0

    assert torch.compile(forward, backend="eager")(torch.ones(3)).tolist() == [3.0, 3.0, 3.0]
    (answer,) = answers
    assert answer.decision.confidence is not None
