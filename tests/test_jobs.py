"""``explain`` and ``choose`` for jobs of real networks, with a shipped CPU beside a GPU of the catalog."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import placer
from placer import Explanation, Job, Loading, Part, PlacerWarning
from placer.profile import save
from placer.profile.profile import Profile

CPU = "amd-epyc-2-core"


def policy() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))


def images() -> nn.Module:
    first, second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
    pooled = nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(pooled, nn.Flatten(), nn.Linear(64 * 64, 10))


def epoch(**arguments: Any) -> Job:
    net = images()
    return Job(
        [
            Part("training", net, (64, 3, 32, 32), count=938, mode="train", **arguments),
            Part("evaluation", net, (128, 3, 32, 32), count=40, mode="infer"),
        ]
    )


def rollouts(net: nn.Module, **update: Any) -> Job:
    return Job(
        [
            Part("rollout", net, (8, 8), count=2048, mode="infer"),
            Part("update", net, (64, 8), count=320, mode="train", **update),
        ]
    )


@pytest.fixture(scope="module")
def large() -> Explanation:
    return placer.explain(epoch(), profile=CPU, what_if="T4")


def test_a_small_policy_and_images_come_out_on_different_devices(large: Explanation) -> None:
    small = placer.explain(rollouts(policy()), profile=CPU, what_if="T4")
    assert (small.decision.device, large.decision.device) == ("cpu", "cuda@Tesla T4")
    assert small.parts[0].devices["cuda@Tesla T4"].bounded_by in ("launches", "transfer", "waits")
    assert {part.devices["cpu"].bounded_by for part in large.parts} <= {"arithmetic", "memory"}
    assert "fastest on" in small.to_text(full=True)
    whole = small.devices["cpu"].step_seconds
    assert small.advice  # told of the whole job
    for row in small.advice:
        assert (row.before, row.gain) == pytest.approx((whole, 1.0 - row.after / row.before))


def test_the_whole_is_the_sum_of_its_parts(large: Explanation) -> None:
    found = large
    for name, row in found.devices.items():
        assert row.step_seconds == pytest.approx(sum(part.seconds(name) for part in found.parts))
        assert sum(row.components.values()) == pytest.approx(row.step_seconds)
        assert sum(layer.devices[name] for layer in found.layers) == pytest.approx(row.components["compute"])
        assert sum(op.devices[name] for op in found.ops) == pytest.approx(row.components["compute"])
    alone = placer.explain(images(), (64, 3, 32, 32), mode="train", profile=CPU, what_if="T4")
    for name, row in alone.devices.items():
        assert found.parts[0].devices[name].step_seconds == pytest.approx(row.step_seconds)


def test_a_loader_that_is_the_bottleneck_is_said_to_be(large: Explanation) -> None:
    name = "cuda@Tesla T4"
    slow = placer.explain(epoch(loading=Loading(0.5)), profile=CPU, what_if="T4")
    row = slow.parts[0].devices[name]
    assert (row.bounded_by, row.components["loading"]) == ("loader", pytest.approx(0.5, rel=0.05))
    assert "is waiting for batches" in slow.to_text(full=True)
    free = large.parts[0].devices[name].step_seconds
    for seconds, step in ((0.5, 0.5), (free / 10, free)):
        job = epoch(loading=Loading(seconds, overlapped=True))
        beside = placer.explain(job, profile=CPU, what_if="T4").parts[0]
        assert beside.devices[name].step_seconds == pytest.approx(step)


def test_one_time_costs_and_break_even_are_those_of_the_job(large: Explanation) -> None:
    once = [part.devices["cuda@Tesla T4"].one_time["context"] for part in large.parts]
    assert large.devices["cuda@Tesla T4"].one_time["context"] == once[0] == once[1]
    one = Job([Part("one step", images(), (64, 3, 32, 32), mode="train")], repeats=1)
    short = placer.explain(one, profile=CPU, what_if="T4")
    assert short.decision.device == "cpu"  # a context takes longer than the step
    assert (short.decision.break_even_steps or 0) > 1
    assert "1 repeat takes" in short.decision.reason


def test_what_a_loop_and_its_loader_take_is_part_of_the_step(handmade_profile: Profile) -> None:
    def explained(**options: Any) -> Explanation:
        return placer.explain(Job([Part("step", policy(), (8, 8), mode="infer", **options)]), profile=CPU)

    bare, wrapped, waiting = explained(), explained(loop_calls=500), explained(loading=1.0)
    assert wrapped.devices["cpu"].step_seconds > bare.devices["cpu"].step_seconds + 500 * 50e-9
    assert not [row for row in waiting.advice if "batch" in row.change]  # a larger batch loads longer
    save(handmade_profile)
    net = policy()
    placement = placer.choose(net, (8, 8), mode="infer", move=False)
    for _ in range(40):
        with placement.step():
            net(torch.zeros(8, 8))
    # What is known of a bare step is not known of one that waits.
    found = placer.choose(Job([Part("waits", net, (8, 8), mode="infer", loading=0.1)]), move=False)
    assert found.predictions["cpu"].step_seconds > 0.1


def test_choose_answers_for_every_part(handmade_profile: Profile) -> None:
    save(handmade_profile)
    net = policy()
    adam = torch.optim.Adam(net.parameters())
    before = [p.clone() for p in net.parameters()]
    placement = placer.choose(rollouts(net, optimizer=adam))
    assert isinstance(placement, placer.JobPlacement)
    assert placement.decision.device == "cpu"
    assert (set(placement.parts), placement.models["rollout"]) == ({"rollout", "update"}, net)
    rollout, update = (placement.parts[name].predictions["cpu"].step_seconds for name in ("rollout", "update"))
    assert placement.predictions["cpu"].step_seconds == pytest.approx(2048 * rollout + 320 * update)
    assert placement.explain().parts[0].name == "rollout"
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    with placement.parts["update"].step():
        net(torch.zeros(64, 8)).sum().backward()
    assert placement.parts["update"].times
    with pytest.raises(placer.PlacerError, match=r"placement.parts\[name\].step"):
        placement.step()


def test_a_job_that_cannot_be_priced_follows_the_convention(
    handmade_profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(handmade_profile)

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("no")

    job = Job([Part("fine", policy(), (8, 8)), Part("broken", Broken(), (8, 8))])
    with pytest.warns(PlacerWarning, match=r"without a prediction: part 'broken': .*RuntimeError: no"):
        placement = placer.choose(job)
    assert (placement.decision.device, placement.confidence) == ("cpu", None)
    assert set(placement.parts) == {"fine", "broken"}  # type: ignore[attr-defined]
    monkeypatch.setenv("PLACER_STRICT", "1")
    with pytest.raises(placer.TraceError, match="part 'broken'"):
        placer.choose(job)
    monkeypatch.setenv("PLACER_DEVICE", "cpu")
    assert placer.choose(job).reason == "cpu: set by PLACER_DEVICE"


def test_what_only_a_step_may_have_is_refused() -> None:
    job = rollouts(policy())
    for arguments in ({"batch": (8, 8)}, {"mode": "train"}, {"steps": 3}, {"data": "device"}):
        for function in (placer.choose, placer.explain):
            with pytest.raises(ValueError, match="a Job says what to run"):
                function(job, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threads must be 'keep'"):
        placer.explain(job, options=placer.Options(threads="tune"))
    with pytest.raises(ValueError, match=r"measure needs an nn\.Module: a Job cannot be timed"):
        placer.choose(job, options=placer.Options(measure="always"))
