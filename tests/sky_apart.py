"""SkyPilot for tests: a home folder of its own with a small catalog of AWS, which is the only enabled cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

FILES = {
    "aws/vms.csv": """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
m6i.large,,,2.0,8.0,,0.096,0.04,us-east-1,use1-az1
m6i.2xlarge,,,8.0,32.0,,0.384,0.15,us-east-1,use1-az1
g4dn.xlarge,T4,1.0,4.0,16.0,,0.526,0.2,us-east-1,use1-az1
p3.2xlarge,V100,1.0,8.0,61.0,,3.06,0.9,us-east-1,use1-az1
""",
    "common/accelerators.csv": "AcceleratorName,Clouds\nT4,['AWS']\nV100,['AWS']\n",
}


def sky_apart(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment before SkyPilot is imported, and enable AWS without an account."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
    for version in ("v6", "v8"):  # of the catalog's format: SkyPilot 0.9, and 0.14
        for name, text in FILES.items():
            path = home / ".sky" / "catalogs" / version / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    from sky import check, global_user_state
    from sky.clouds.cloud import CloudCapability

    try:
        global_user_state.set_enabled_clouds(["AWS"], CloudCapability.COMPUTE)
    except TypeError:  # newer versions ask for a workspace
        global_user_state.set_enabled_clouds(["AWS"], CloudCapability.COMPUTE, "default")
        global_user_state.set_allowed_clouds(check._get_workspace_allowed_clouds("default"), "default")
