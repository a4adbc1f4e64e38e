"""Profiles come first, then the catalog; a name that is neither lists both."""

from __future__ import annotations

from pathlib import Path

import pytest

from placer import profile as profiles
from placer.errors import ProfileError, ProfileMissing, UnknownGPU
from placer.pricing.named_profile import named_profile
from placer.profile.profile import Profile


def test_profiles_come_before_the_catalog(handmade_profile: Profile) -> None:
    profiles.save(handmade_profile, profiles.named_path("T4"))
    assert named_profile("T4", lambda: None).devices() == ("cpu", "cuda")
    assert named_profile("Tesla T4", lambda: None).devices() == ("cuda",)
    assert named_profile(handmade_profile, lambda: None) is handmade_profile


def test_an_unknown_name_lists_what_is_close_and_how_to_list_both() -> None:
    with pytest.raises(UnknownGPU, match=r"no profile .* placer profile list; no GPU .*RTX 4090.*placer gpus"):
        named_profile("RTX 4099", lambda: None)
    with pytest.raises(UnknownGPU, match=r"there is: .*placer profile list; no GPU .*closest.*T4.*placer gpus"):
        named_profile("T4x", lambda: None)
    with pytest.raises(UnknownGPU, match="no GPU is called ''"):
        named_profile("", lambda: None)


def test_a_missing_file_is_one(tmp_path: Path) -> None:
    for name in (str(tmp_path / "none.json"), tmp_path / "T4", str(tmp_path / "none"), None):
        with pytest.raises(ProfileMissing):
            named_profile(name, lambda: None)
    (tmp_path / "T4.json").write_text("{}")
    with pytest.raises(ProfileError, match="not a placer profile"):
        named_profile(str(tmp_path / "T4.json"), lambda: None)
