"""SkyPilot's catalog as machines of a fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from placer import fleets
from placer.errors import PlacerError
from placer.integrations import skypilot
from placer.integrations.skypilot import gpu_called

HEADER = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
)
T4 = "\"{'Gpus': [{'Name': 'T4', 'Count': 1.0, 'MemoryInfo': {'SizeInMiB': 16384}}], 'TotalGpuMemoryInMiB': 16384}\""
V100 = T4.replace("T4", "V100")
AWS = f"""\
t3.large,,,2.0,8.0,,0.0832,0.03,us-east-1,use1-az1
m6i.large,,,2.0,8.0,,0.112,0.04,eu-west-1,euw1-az1
m6i.large,,,2.0,8.0,,0.096,0.04,us-east-1,use1-az1
m6i.2xlarge,,,8.0,32.0,,0.384,0.15,us-east-1,use1-az1
m6i.8xlarge,,,32.0,128.0,,1.536,0.6,us-east-1,use1-az1
g4dn.xlarge,T4,1.0,4.0,16.0,{T4},0.587,0.2,eu-west-1,euw1-az1
g4dn.xlarge,T4,1.0,4.0,16.0,{T4},0.526,0.2,us-east-1,use1-az1
g4dn.12xlarge,T4,4.0,48.0,192.0,{T4},3.912,1.3,us-east-1,use1-az1
p3.2xlarge,V100,1.0,8.0,61.0,{V100},3.06,0.9,us-east-1,use1-az1
dl1.24xlarge,Gaudi HL-205,1.0,96.0,768.0,,13.10904,4.0,us-east-1,use1-az1
p2.xlarge,K80,1.0,4.0,61.0,,,0.27,us-east-1,use1-az1
"""
#: Google's columns have another order, its GPUs a price of their own, and its TPUs no host.
GCP = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice
n1-standard-4,4.0,15.0,,,,us-central1,us-central1-a,0.19,0.04
n2-standard-8,8.0,32.0,,,,us-central1,us-central1-a,0.388472,0.09
a2-highgpu-1g,12.0,85.0,,,,us-central1,us-central1-a,0.73948,0.36975
,,,A100,1,A100,us-central1,us-central1-a,2.933908,1.1
,,,T4,1,T4,us-central1,us-central1-a,0.35,0.14
,,,tpu-v6e-1,1,tpu-v6e-1,us-central1,us-central1-a,2.7,0.54421
"""


def catalog(home: Path, **clouds: str) -> Path:
    """A catalog as SkyPilot keeps it."""
    for cloud, text in clouds.items():
        path = home / ".sky" / "catalogs" / "v8" / cloud / "vms.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a catalog of two clouds."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return catalog(tmp_path, aws=HEADER + AWS, gcp=GCP)


def named(machines: list[fleets.Machine]) -> dict[str, fleets.Machine]:
    return {machine.name: machine for machine in machines}


def test_machines_are_the_cheapest_instances_of_a_kind(home: Path) -> None:
    found = skypilot.machines()
    assert [machine.price for machine in found] == sorted(machine.price or 0.0 for machine in found)
    by_name = named(found)
    assert set(by_name) == {"m6i.large", "m6i.2xlarge", "m6i.8xlarge", "g4dn.xlarge", "p3.2xlarge", "a2-highgpu-1g"}
    t4 = by_name["g4dn.xlarge"]
    assert (t4.gpu, t4.price) == ("Tesla T4", 0.526)
    assert t4.note.startswith("aws us-east-1, price of 20")
    assert t4.profile == fleets.cpu_class(4, 16)
    assert by_name["m6i.2xlarge"].price == 0.384  # n2-standard-8 costs more
    assert named(skypilot.machines("aws", region="eu-west-1"))["g4dn.xlarge"].price == 0.587
    with pytest.raises(PlacerError, match=r"no cloud 'azure'; it has: aws, gcp; .* sky gpus list --cloud azure"):
        skypilot.machines("azure")
    with pytest.raises(PlacerError, match=r"nothing in region 'mars' of aws, gcp"):
        skypilot.machines(region="mars")


@pytest.mark.parametrize("text", ["InstanceType,Price\nx,1\n", HEADER + AWS.replace("0.526", "cheap")])
def test_a_catalog_that_cannot_be_read_is_named(home: Path, text: str) -> None:
    catalog(home, aws=text)
    with pytest.raises(PlacerError, match=r"aws/vms.csv cannot be read .*: delete it, and download it again"):
        skypilot.machines()


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("A100-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A10G", "NVIDIA A10G"),
        ("V100-32GB", "Tesla V100-SXM2-32GB"),
        ("H100-MEGA", "NVIDIA H100 80GB HBM3"),
        ("RTXPRO6000S", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ("tpu-v5p-8", ""),
    ],
)
def test_names_of_skypilot_are_found(name: str, gpu: str) -> None:
    assert gpu_called(name) == gpu
