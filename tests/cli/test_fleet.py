"""``placer fleet``: which machines a command line names, every form, and wrong usage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from placer import errors
from placer.cli import machines
from placer.fleets import Machine
from placer.profile import Profile, load_cached, shipped_folder

Run = Callable[..., Result]
EPYC = ("--profile", "amd-epyc-2-core")


@pytest.fixture
def target(nets: str) -> tuple[str, ...]:
    return "fleet", f"{nets}:wide", "--batch", "512,84"


@pytest.fixture(scope="module")
def host() -> Profile:
    return load_cached(shipped_folder() / "amd-epyc-2-core.json")


@pytest.mark.parametrize(
    ("text", "cpu", "threads", "gpu"),
    [
        ("Xeon 8375C=32", "Intel Xeon Platinum 8375C", 32, ""),
        ("Xeon 8375C=2:T4", "Intel Xeon Platinum 8375C", 2, "Tesla T4"),
        ("c5.12xlarge=48", "Intel Xeon Platinum 8275CL", 24, ""),
        ("m8g.4xlarge=16:T4", "AWS Graviton4", 16, "Tesla T4"),
        ("m5=2", "Intel Xeon Platinum 8175M", 1, ""),
        ("node7=8", "a cloud CPU with 8 vCPUs", 4, ""),
    ],
)
def test_a_cpu_by_name_and_a_type_of_instance(text: str, cpu: str, threads: int, gpu: str) -> None:
    found = machines.parse_machine(text)
    assert isinstance(found, Machine)
    assert found.name == text.partition("=")[0]
    assert (found.profile.fingerprint["cpu"], found.profile.threads("cpu"), found.gpu) == (cpu, (threads,), gpu)


def test_a_file_of_machines(run: Run, target: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(
        "name,profile,vcpus,gpu,price,count\na,amd-epyc-2-core,,,0.1,3\nb,,4,T4,0.526,\nc,,,V100,,2\nd,,16,,0.6,1\n"
    )
    found = json.loads(run(*target, *EPYC, "--nodes", str(path), "--format", "json").stdout)
    rows = {row["machine"]: row for row in found["rows"]}
    assert {name: row["count"] for name, row in rows.items()} == {"a": 3, "b": 1, "c": 2, "d": 1}
    assert set(rows["b"]["devices"]) == {"cpu", "cuda"}
    assert set(rows["c"]["devices"]) == {"cuda"}
    assert rows["c"]["dollars"] is None
    assert rows["a"]["provenance"] == "calibrated"
    listed = tmp_path / "nodes.json"
    listed.write_text(json.dumps([{"name": "e", "vcpus": 4, "gpu": "T4", "price": 0.5}]))
    (only,) = machines.of_file(str(listed), machines.host("amd-epyc-2-core").profile)
    assert (only.name, only.gpu, only.price) == ("e", "Tesla T4", 0.5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name,vcpus,colour\nx,2,red\n", "machine 1: unknown field 'colour'; known: name, profile"),
        ("name,vcpus\nx,2\n,4\n", "machine 2: it has no name"),
        ("name,vcpus\nx,many\n", "machine 1: could not convert string to float: 'many'"),
        ("name,vcpus,gpu\nx,2,T99\n", "machine 1: no GPU is called 'T99'"),
        ("name,profile,vcpus\nx,amd-epyc-2-core,2\n", "give one of them"),
        ("name,vcpus,price\nx,2,-1\n", "price of x must be dollars per hour above 0"),
        ("name,vcpus,count\nx,2,1.5\n", "count of x must be a whole number"),
        ("name,vcpus,count\nx,2,1e999\n", "machine 1: cannot convert float infinity"),
        ("name\nx\n", "what is x?"),
        ("", "names no machine"),
        ("name,vcpus\n\xff,2\n", "is no list of machines: 'utf-8'"),
        ('{"name": "x"}', "is no list of machines"),
        (f"name,vcpus\n{'x' * 200_000},2\n", "is no list of machines: field larger than field limit"),
    ],
)
def test_a_wrong_file_names_the_row(tmp_path: Path, host: Profile, text: str, says: str) -> None:
    path = tmp_path / ("nodes.json" if text[:1] in ("{", "[") else "nodes.csv")
    path.write_text(text, encoding="latin-1")
    with pytest.raises(errors.PlacerError) as error:
        machines.of_file(str(path), host)
    assert says in str(error.value)


def test_a_job_is_a_target_and_a_step_has_its_options(run: Run, nets: str) -> None:
    assert "for 50 jobs" in run("fleet", f"{nets}:job", *EPYC, "--vcpus", "2").stdout.splitlines()[0]
    of_a_step = ("--batch", "16,84", "--loss", "cross_entropy", "--loss-target", "16", "--autocast", "bf16")
    run("fleet", f"{nets}:build(classes=5)", *of_a_step, "--target", "50ms", *EPYC, "--gpu", "T4")


def test_a_page_a_feature_file_and_sbatch_lines(run: Run, target: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    page = tmp_path / "fleet.html"
    result = run(*target, *EPYC, "--gpu", "T4", "--format", "html", "--output", str(page))
    assert result.stdout == ""
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    labels = run(*target, *EPYC, "--format", "nfd").stdout.splitlines()
    assert labels[1].startswith("feature.node.kubernetes.io/placer.")
    assert labels[1].endswith("device=cpu")
    assert run(*target, *EPYC, "--gpu", "T4", "--format", "slurm").stdout.endswith("#SBATCH --gres=gpu:t4:1\n")


def test_skypilots_catalog_gives_instances_and_prices(
    run: Run, target: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    asked = (*target, *EPYC, "--catalog", "skypilot", "--steps", "1000", "--objective", "cost")
    assert "SkyPilot has no catalog" in run(*asked, code=1).stderr
    folder = tmp_path / ".sky" / "catalogs" / "v8" / "aws"
    folder.mkdir(parents=True)
    (folder / "vms.csv").write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
        "m6i.large,,,2,8,,0.096,0.04,us-east-1,us-east-1a\n"
        "g4dn.xlarge,T4,1,4,16,,0.526,0.2,us-east-1,us-east-1a\n"
    )
    text = run(*asked, "--price", "m6i.large=2").stdout
    for part in (
        "g4dn.xlarge (T4) †",
        "m6i.large §",
        "- prices on demand are those of SkyPilot's catalog of 20",
        "- prices per hour are as given",
    ):
        assert part in text
