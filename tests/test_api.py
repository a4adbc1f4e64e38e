"""The contract of ``choose`` and ``explain``: each promise has a test named after it."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from competing import compete
from torch import nn

import placer
from placer import machine, profile, tracing
from placer.decision import comparison, history
from placer.errors import PlacerWarning, ProfileMissing, ProfileStale, TraceError
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
    return [f"{p.name}={p.default!r}" if p.default is not p.empty else p.name
            for p in inspect.signature(function).parameters.values()]  # fmt: skip


# Signatures are locked: others build on them.


def test_signatures_are_those_of_the_contract() -> None:
    workload = ["model", "batch_shape=None", "example=None", "mode=None", "loss=None", "optimizer=None", "steps=None",
                "data='host'", "autocast=None", "devices=None", "threads='keep'"]  # fmt: skip
    aim = ["objective='time'", "price=None", "watts=None"]
    assert names(placer.choose) == [*workload, "measure='never'", "profile=None", "move=True", "modules=None", *aim]
    assert names(placer.explain) == [*workload, "profile=None", "modules=None", "what_if=None", *aim]
    assert names(placer.calibrate) == ["budget=60.0", "devices=None", "progress=True", "path=None"]
    assert names(placer.load_profile) == ["source=None"]
    for function in (placer.choose, placer.explain):
        kinds = [p.kind for p in inspect.signature(function).parameters.values()]
        assert kinds[:2] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 2
        assert set(kinds[2:]) == {inspect.Parameter.KEYWORD_ONLY}


# What comes back.


def test_a_placement_has_everything_the_contract_names(model: nn.Module, calibrated: Profile) -> None:
    placement = choose(model, (32, 84), steps=100)
    assert placement.device == "cpu"
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


def test_the_model_is_untouched_by_pricing(model: nn.Sequential, calibrated: Profile) -> None:
    model[1].eval()
    seen: list[Any] = []
    model[0].register_forward_hook(lambda *_: seen.append("hook"))
    model(torch.randn(4, 84)).sum().backward()
    seen.clear()
    state = copy.deepcopy(model.state_dict())
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    identities = [id(p) for p in model.parameters()]
    flags = [m.training for m in model.modules()]
    generator = torch.get_rng_state()
    choose(model, (32, 84), move=False)
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)
    after = [p.grad for p in model.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(after, grads, strict=True) if a is not None)
    assert [id(p) for p in model.parameters()] == identities
    assert [m.training for m in model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), generator)
    assert seen == []
    assert len(model[0]._forward_hooks) == 1


def test_the_move_keeps_parameters_and_optimizer_together(model: nn.Module, calibrated: Profile) -> None:
    optimizer = torch.optim.Adam(model.parameters())
    identities = [id(p) for p in model.parameters()]
    choose(model, (32, 84), optimizer=optimizer)
    assert [id(p) for g in optimizer.param_groups for p in g["params"]] == identities


def test_explain_moves_and_records_nothing(model: nn.Module, calibrated: Profile) -> None:
    explanation = placer.explain(model, (32, 84), mode="infer", devices=["cpu"])
    assert explanation.workload["mode"] == "infer"
    assert history.last() == []


def test_every_decision_is_recorded(model: nn.Module, calibrated: Profile) -> None:
    choose(model, (32, 84))
    choose(model, (32, 84))
    entries = history.last(10)
    assert [entry["kind"] for entry in entries] == ["decision"] * 2
    recorded = placer.Explanation.from_dict(entries[0]["explanation"])
    total = sum(row.devices["cpu"] for row in recorded.layers)
    assert total == pytest.approx(recorded.devices["cpu"].components["compute"])


def test_a_decision_that_cannot_be_recorded_stands(
    model: nn.Module, calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("no such line")

    # A text of its own: each is said once in a process.
    monkeypatch.setattr("placer.answer.explanation_of", broken)
    with pytest.warns(PlacerWarning, match="not kept for later runs: .* RuntimeError: no such line"):
        placement = placer.choose(model, (32, 84))
    assert placement.confidence is not None
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(RuntimeError, match="no such line"):
        placer.choose(model, (16, 84))


def test_threads_tune_takes_the_best_calibrated_count(model: nn.Module, handmade_profile: Profile) -> None:
    slow = handmade_profile.fit("cpu")
    fast = dataclasses.replace(slow, threads=slow.threads + 1, rates={k: v * 2 for k, v in slow.rates.items()}
                               | {"dispatch_seconds": 1e-7})  # fmt: skip
    profile.save(dataclasses.replace(handmade_profile, fits=(slow, fast)))
    before = torch.get_num_threads()
    kept = choose(model, (32, 84))
    assert (kept.threads, torch.get_num_threads()) == (before, before)
    answered = choose(model, (32, 84), threads="tune", move=False)
    assert (answered.threads, torch.get_num_threads()) == (before + 1, before)
    tuned = choose(model, (32, 84), threads="tune")
    assert (tuned.threads, torch.get_num_threads()) == (before + 1, before + 1)
    assert tuned.predictions["cpu"].step_seconds < kept.predictions["cpu"].step_seconds
    assert [(o.threads, o.current) for o in answered.decision.thread_options] == [(before, True), (before + 1, False)]
    assert f", with {before + 1} threads: with {before} a step would take" in answered.reason
    assert kept.decision.thread_options == ()
    # The setting is another question now, and its answer stays what it is.
    assert choose(model, (32, 84), threads="tune").threads == before + 1
    assert "the best of" in choose(model, (32, 84), threads="tune").reason


def test_threads_tune_keeps_the_present_count_in_a_tie(model: nn.Module, handmade_profile: Profile) -> None:
    fit = handmade_profile.fit("cpu")
    near = dataclasses.replace(fit, threads=fit.threads + 1, rates={k: v * 1.03 for k, v in fit.rates.items()})
    profile.save(dataclasses.replace(handmade_profile, fits=(fit, near)))
    placement = choose(model, (256, 84), threads="tune")
    assert placement.threads == torch.get_num_threads() == fit.threads
    assert len(placement.decision.thread_options) == 2


def test_explain_shows_the_numbers_of_threads(model: nn.Module, handmade_profile: Profile) -> None:
    fit = handmade_profile.fit("cpu")
    profile.save(dataclasses.replace(handmade_profile, fits=(fit, dataclasses.replace(fit, threads=fit.threads + 1))))
    explanation = placer.explain(model, (32, 84), threads="tune")
    assert "A step on the CPU by number of threads" in explanation.to_text()
    rows = explanation.to_dict()["thread_counts"]
    assert [(row["threads"], row["current"]) for row in rows] == [(fit.threads, True), (fit.threads + 1, False)]
    assert placer.Explanation.from_dict(explanation.to_dict()) == explanation
    assert "number of threads" not in placer.explain(model, (32, 84)).to_text()


def test_the_race_runs_with_the_threads_that_were_chosen(
    model: nn.Module, calibrated: Profile, make_prediction: Callable[..., Prediction], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = torch.get_num_threads() + 1
    seen: list[int] = []

    class Seeing(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            result: torch.Tensor = super().forward(x)
            return result

    found = {n: dataclasses.replace(make_prediction(n, 1e-3), threads=count) for n in ("cpu", "cpu:0")}
    compete(monkeypatch, found)
    placement = choose(Seeing(model), (8, 84), measure="always", threads="tune", move=False)
    assert placement.threads == count
    assert set(seen) == {count}
    assert torch.get_num_threads() == count - 1


def test_what_if_adds_the_accelerator_of_another_profile(
    model: nn.Module, handmade_profile: Profile, tmp_path: Path
) -> None:
    profile.save(dataclasses.replace(handmade_profile, fits=handmade_profile.fits[:1]))
    other = profile.save(handmade_profile, tmp_path / "server.json")
    explanation = placer.explain(model, (32, 84), devices=["cpu"], what_if=str(other))
    assert list(explanation.devices) == ["cpu", "cuda@server"]
    assert any("not on this machine" in note for note in explanation.notes)
    with pytest.raises(placer.ProfileError, match="has no accelerator"):
        placer.explain(model, (32, 84), devices=["cpu"], what_if=str(profile.default_path()))


@pytest.mark.usefixtures("calibrated")
def test_what_if_takes_any_gpu_of_the_catalog(model: nn.Module) -> None:
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


@pytest.mark.usefixtures("calibrated")
def test_a_placement_says_what_its_numbers_rest_on(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    placement = placer.choose(model, (32, 84), devices=["cpu"])
    assert placement.provenance == placement.predictions["cpu"].provenance == "calibrated"
    monkeypatch.setenv("PLACER_DEVICE", "cpu")
    assert placer.choose(model, (32, 84), devices=["cpu"]).provenance is None


def test_an_explicit_profile_compares_its_own_devices(
    model: nn.Module, handmade_profile: Profile, tmp_path: Path
) -> None:
    path = profile.save(handmade_profile, tmp_path / "server.json")
    assert set(placer.explain(model, (32, 84), profile=path).devices) == {"cpu", "cuda"}
    assert set(placer.explain(model, (32, 84), profile=handmade_profile, devices=["cuda"]).devices) == {"cuda"}


# choose never breaks a training script.


def test_no_profile_is_one_warning_with_the_next_command(model: nn.Module) -> None:
    with pytest.warns(PlacerWarning, match="an estimate .* run: placer calibrate") as caught:
        placement, _ = placer.choose(model, (32, 84)), placer.choose(model, (64, 84))
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert placement.provenance == "published"
    placement.to(torch.ones(2))


def test_a_stale_profile_is_named(
    model: nn.Module, handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {**handmade_profile.fingerprint, "torch": "1.0"}
    profile.save(dataclasses.replace(handmade_profile, fingerprint=old))
    with pytest.warns(PlacerWarning, match=r"torch: 1\.0 -> .*run: placer calibrate"):
        assert placer.choose(model, (32, 84)).provenance == "published"
    assert any("torch: 1.0 -> " in note for note in placer.explain(model, (32, 84)).notes)
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(ProfileStale, match="torch: "):
        placer.explain(model, (32, 84))


def test_a_damaged_profile_falls_back(model: nn.Module) -> None:
    path = profile.default_path()
    path.parent.mkdir(parents=True)
    path.write_text('{"format": "placer machine profile", "schema"')
    with pytest.warns(PlacerWarning, match=path.name):
        assert placer.choose(model, (32, 84)).provenance == "published"


def test_a_step_that_cannot_be_traced_falls_back(calibrated: Profile) -> None:
    class Bad(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no luck")

    with pytest.warns(PlacerWarning, match="no luck") as caught:
        assert placer.choose(Bad(), (32, 84)).confidence is None
    assert len(caught) == 1
    with pytest.raises(TraceError):
        placer.explain(Bad(), (32, 84))


def test_whatever_pricing_raises_falls_back(
    model: nn.Module, calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(comparison, "price", broken)
    with pytest.warns(PlacerWarning, match="ZeroDivisionError: a bug; to see where, run with PLACER_STRICT=1"):
        assert placer.choose(model, (32, 84)).confidence is None


def test_a_device_that_was_not_calibrated_falls_back(model: nn.Module, handmade_profile: Profile) -> None:
    profile.save(dataclasses.replace(handmade_profile, fits=handmade_profile.fits[1:]))
    with pytest.warns(PlacerWarning, match="cpu is not calibrated"):
        placer.choose(model, (32, 84), devices=["cpu"])


def test_strict_raises_instead(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(ProfileMissing, match="placer calibrate"):
        placer.choose(model, (32, 84))
    monkeypatch.setenv("PLACER_STRICT", "0")
    with pytest.warns(PlacerWarning):
        placer.choose(model, (32, 84))


def test_placer_device_overrides_everything(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_DEVICE", "cpu")
    placement = choose(model, (32, 84))
    assert (placement.device, placement.confidence, placement.reason) == ("cpu", None, "cpu: set by PLACER_DEVICE")
    monkeypatch.setenv("PLACER_DEVICE", "warp-drive")
    with pytest.raises(ValueError, match=r"PLACER_DEVICE.*'warp-drive'"):
        placer.choose(model, (32, 84))


@pytest.mark.skipif(bool(machine.accelerators()), reason="needs a machine without an accelerator")
def test_placer_device_must_exist(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_DEVICE", "cuda")
    with pytest.raises(ValueError, match="'cuda' is not on this machine; accepted: cpu"):
        placer.choose(model, (32, 84))


@pytest.mark.parametrize(("free", "device"), [(10**9, "cuda"), (1000, "cpu")])
def test_the_conventional_rule(model: nn.Module, monkeypatch: pytest.MonkeyPatch, free: int, device: str) -> None:
    monkeypatch.setattr(machine, "available_devices", lambda: ("cpu", "cuda"))
    monkeypatch.setattr(machine, "known_free_memory", lambda _: free)
    with pytest.warns(PlacerWarning):
        placement = placer.choose(model, (32, 84), move=False)
    assert (placement.device, placement.confidence) == (device, None)


# A wrong argument always raises at once.


@pytest.mark.parametrize(("arguments", "error", "says"), [
    ({"mode": "eval"}, ValueError, "mode must be"),
    ({"threads": "all"}, ValueError, "threads must be 'keep' or 'tune', not 'all'"),
    ({"threads": 4}, ValueError, "not 4"),
    ({"measure": "yes"}, ValueError, "measure must be 'never' or 'unsure' or 'always'"),
    ({"devices": []}, ValueError, "devices is empty"),
    ({"devices": ["warp drive"]}, ValueError, "'warp drive' is not a device"),
    ({"devices": 3}, TypeError, "devices must be"),
    ({"devices": [3]}, TypeError, "a device is a name"),
    ({"devices": ["cuda:77"]}, ValueError, "'cuda:77' is not on this machine; accepted: cpu"),
    ({"profile": 3}, TypeError, "profile must be"),
    ({"profile": "no such/name/"}, placer.ProfileMissing, "no profile at"),
    ({"steps": 0}, ValueError, "steps must be"),
])  # fmt: skip
def test_wrong_arguments_raise_at_once(
    model: nn.Module, calibrated: Profile, monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any], error: type[Exception], says: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("PLACER_STRICT", "1")  # so that a profile that is not there raises as well
    with pytest.raises(error, match=says):
        placer.choose(model, (32, 84), **arguments)
    # Not only the first time: an answer that is known must not hide a wrong argument.
    choose(model, (32, 84))
    with pytest.raises(error, match=says):
        placer.choose(model, (32, 84), **arguments)


def test_measure_needs_a_model(model: nn.Module, calibrated: Profile) -> None:
    with pytest.raises(ValueError, match=r"measure needs an nn\.Module"):
        placer.choose(lambda: None, modules=model, measure="always")


@pytest.mark.parametrize("budget", [0, -1.0, float("nan"), float("inf")])
def test_calibrate_refuses_a_budget_that_is_none(budget: float) -> None:
    with pytest.raises(ValueError, match="budget must be a positive number of seconds"):
        placer.calibrate(budget=budget)


def test_calibrate_refuses_wrong_types() -> None:
    with pytest.raises(TypeError, match="budget must be a number of seconds, not '60'"):
        placer.calibrate(budget="60")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not on this machine"):
        placer.calibrate(devices=["cuda:99"])


# Every question is traced and priced: nothing is remembered but real steps.


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows by one with every trace."""
    seen: list[object] = []
    real = tracing.trace

    def counted(workload: Any) -> Any:
        seen.append(workload.args)
        return real(workload)

    monkeypatch.setattr(tracing, "trace", counted)
    return seen


def test_every_question_is_traced(model: nn.Module, calibrated: Profile, traces: list[object]) -> None:
    first = choose(model, (32, 84))
    second = choose(model, (32, 84))
    assert len(traces) == 2
    assert second.predictions["cpu"].step_seconds == first.predictions["cpu"].step_seconds


def test_a_changed_model_or_profile_is_priced_again(
    model: nn.Sequential, calibrated: Profile, handmade_profile: Profile, traces: list[object]
) -> None:
    choose(model, (32, 84))
    model[4] = nn.Linear(32, 4)
    choose(model, (32, 84))
    assert len(traces) == 2
    profile.save(dataclasses.replace(handmade_profile, created="2026-02-03T00:00:00+00:00", seconds=11.0))
    choose(model, (32, 84))
    assert len(traces) == 3


def test_the_number_of_threads_is_part_of_the_question(
    model: nn.Module, handmade_profile: Profile, traces: list[object]
) -> None:
    fit = handmade_profile.fit("cpu")
    profile.save(dataclasses.replace(handmade_profile, fits=(fit, dataclasses.replace(fit, threads=fit.threads + 1))))
    choose(model, (32, 84))
    torch.set_num_threads(fit.threads + 1)
    assert choose(model, (32, 84)).threads == fit.threads + 1
    assert len(traces) == 2


# measure


@pytest.fixture
def two_devices(make_prediction: Callable[..., Prediction], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two names of the CPU compete, within each other's interval; the second is predicted to be slower."""
    found = {"cpu": make_prediction("cpu", 1e-3), "cpu:0": make_prediction("cpu:0", 1.05e-3)}
    compete(monkeypatch, found)


@pytest.mark.parametrize(("measure", "measured"), [("never", False), ("unsure", True), ("always", True)])
@pytest.mark.usefixtures("two_devices")
def test_measure(model: nn.Module, calibrated: Profile, measure: str, measured: bool) -> None:
    placement = choose(model, (8, 84), measure=measure, move=False)
    assert placement.reason.endswith("(measured)") is measured
    for prediction in placement.predictions.values():
        assert sum(prediction.components.values()) == pytest.approx(prediction.step_seconds)
    assert ("not predicted" in placement.predictions["cpu"].components) is measured


def test_unsure_does_not_measure_what_is_clear(
    model: nn.Module, calibrated: Profile, make_prediction: Callable[..., Prediction], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"cpu": make_prediction("cpu", 1e-3), "cpu:0": make_prediction("cpu:0", 1e-1)}
    compete(monkeypatch, found)
    assert not choose(model, (8, 84), measure="unsure", move=False).reason.endswith("(measured)")
    assert choose(model, (8, 84), measure="always", move=False).reason.endswith("(measured)")
