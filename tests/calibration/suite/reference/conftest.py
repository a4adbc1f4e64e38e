from __future__ import annotations

from dataclasses import replace

import pytest

from placer.profile.profile import Profile


@pytest.fixture
def launching(handmade_profile: Profile) -> Profile:
    """A machine made by hand whose host takes four times as long to issue an op to the GPU as the CPU to run one."""
    cpu, cuda = handmade_profile.fits
    return replace(handmade_profile, fits=(cpu, replace(cuda, framework={"host": 8e-6})))
