from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from placer import profile
from placer.cli import main
from placer.errors import TargetError
from placer.profile.profile import Profile
from placer.workload.target import load_exported


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A small network, exported for any batch size."""
    model = nn.Sequential(nn.Linear(84, 16), nn.ReLU(), nn.Linear(16, 1)).eval()
    batch = torch.export.Dim("batch", min=2, max=4096)
    exported = torch.export.export(model, (torch.randn(8, 84),), dynamic_shapes=({0: batch},))
    path = tmp_path / "net.pt2"
    torch.export.save(exported, path)
    return str(path)


def test_the_model_and_the_inputs_it_was_exported_with(program: str) -> None:
    model, inputs = load_exported(program)
    assert [tensor.shape for tensor in inputs] == [(8, 84)]
    assert not model.training
    assert model(*inputs).shape == (8, 1)
    assert load_exported(program, train=True)[0].training


def explained(program: str, known: Profile, tmp_path: Path, *options: str) -> dict[str, object]:
    path = profile.save(known, tmp_path / "profile.json")
    arguments = ["explain", program, "--profile", str(path), "--format", "json", *options]
    result = CliRunner().invoke(main, arguments, prog_name="placer")
    assert result.exit_code == 0, result.output
    values: dict[str, object] = json.loads(result.stdout)
    return values


def test_explain_takes_the_example_or_another_batch(program: str, handmade_profile: Profile, tmp_path: Path) -> None:
    values = explained(program, handmade_profile, tmp_path)
    assert values["workload"]["inputs"] == ["8×84 float32"]  # type: ignore[index]
    assert values["workload"]["mode"] == "infer"  # type: ignore[index]
    other = explained(program, handmade_profile, tmp_path, "--batch", "512,84", "--mode", "train")
    assert other["workload"]["inputs"] == ["512×84 float32"]  # type: ignore[index]
    assert other["workload"]["mode"] == "train"  # type: ignore[index]
    assert any(row["op"].startswith("optimizer::") for row in other["ops"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("content", [None, b"", b"not a program"])
def test_what_is_no_program_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "other.pt2"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TargetError, match=r"other\.pt2") as caught:
        load_exported(str(path))
    assert "\n" not in str(caught.value)
