"""The profile on disk: round trip, every kind of damage, atomic replacement, names, staleness."""

from __future__ import annotations

import json
import math
import os
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer import machine
from placer import profile as profiles
from placer.errors import ProfileDamaged, ProfileError, ProfileMissing, ProfileTooNew, ProfileTooOld
from placer.profile import store
from placer.profile.profile import Device, FamilyFit, Profile
from placer.profile.schema import MOST_OFFSET, decode, encode

FAMILY_OF_CPU = FamilyFit(
    numbers=(1.5, -0.25, 0.0),
    offsets={"": -0.02, "aten::mm": 0.1, "aten::addmm:bfloat16": -1.2},
    sigma=0.2,
    measured=3,
)
FAMILIES = {"matmul": FAMILY_OF_CPU}
OF_GPU = {"matmul": FamilyFit(numbers=(), offsets={"aten::mm": 0.05}, sigma=0.1, measured=1)}
RATES = {"flops/float32": 5e10}
PROFILE = Profile(
    schema=profiles.SCHEMA,
    created="2026-01-02T03:04:05+00:00",
    fingerprint={"cpu": "Test CPU", "threads": 4, "accelerators": [{"device": "cuda", "name": "Test GPU"}]},
    fits=(
        Device("cpu", 1, RATES, FAMILIES, {"call_seconds": 1e-6}, {"scale": 1.1}, "far", edition=2**32 - 1),
        Device("cpu", 4, RATES, FAMILIES, {}, {}),
        Device("cuda", 4, {"flops/float32": 5e13}, OF_GPU, {}, {}, gpu="Tesla T4", edition=7),
    ),
    noise={"median_spread": 0.02},
    warnings=("a busy machine",),
    complete=True,
    seconds=12.5,
)


def document() -> Any:
    return json.loads(encode(PROFILE))


# --- round trip -----------------------------------------------------------------------------------


def test_a_saved_profile_loads_equal_by_whatever_it_is_named(
    placer_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With devices that cannot be used, and the reasons."""
    profile = replace(PROFILE, unusable={"cuda": "RuntimeError: no kernel image is available"})
    profiles.save(profile, profiles.named_path("lab-gpu"))
    assert profiles.imported() == ("lab-gpu",)
    assert profiles.load("lab-gpu") == replace(profile, name="lab-gpu")
    default = profiles.save(profile)
    assert default == profiles.default_path()
    assert default.is_relative_to(placer_home)
    assert profiles.load() == replace(profile, name=str(default))
    plain = profiles.save(PROFILE, tmp_path / "p.json")
    assert b"unusable" not in plain.read_bytes()  # earlier versions of placer read it
    assert profiles.load(plain) == replace(PROFILE, name=str(plain))
    monkeypatch.chdir(tmp_path)
    assert profiles.load("p.json").fits == PROFILE.fits


learnt = st.floats(-MOST_OFFSET, MOST_OFFSET)
names = st.text(string.ascii_letters + "/_:.", max_size=20)


@settings(max_examples=50, deadline=None)
@given(
    numbers=st.lists(learnt, max_size=12),
    sigma=st.floats(0, 1e30),
    edition=st.integers(0, 2**53),
    offsets=st.dictionaries(names, learnt, max_size=8),
    rates=st.dictionaries(names, st.floats(0, 1e300), max_size=4),
)
def test_any_finite_numbers_survive(
    numbers: list[float], sigma: float, edition: int, offsets: dict[str, float], rates: dict[str, float]
) -> None:
    """Rates as they are, what is learnt to a ten-thousandth."""
    family = FamilyFit(tuple(numbers), offsets, sigma, len(offsets))
    fit = replace(PROFILE.fits[0], rates=rates, families={"matmul": family}, edition=edition)
    loaded = decode(encode(replace(PROFILE, fits=(fit,))), "p")
    (found,) = loaded.fits
    assert (found.rates, found.edition) == (rates, edition)
    got = found.families["matmul"]
    assert got.numbers == pytest.approx(family.numbers, rel=1e-12, abs=1e-4)
    assert got.offsets == pytest.approx(offsets, abs=1e-4)
    assert (got.sigma, got.measured) == (pytest.approx(sigma, rel=1e-12, abs=1e-4), len(offsets))
    assert decode(encode(loaded), "p") == loaded


# --- looking things up ----------------------------------------------------------------------------


def test_fit_takes_the_nearest_thread_count_and_refuses_what_is_not_there() -> None:
    asked = (None, 1, 2, 3, 4, 64)
    assert [PROFILE.fit("cpu", threads).threads for threads in asked] == [4, 1, 1, 4, 4, 4]
    assert (PROFILE.threads("cuda:0"), PROFILE.threads("mps")) == ((4,), ())
    with pytest.raises(ProfileError, match=r"'mps' is not calibrated .*calibrated: cpu, cuda.*--device mps"):
        PROFILE.fit("mps")
    with pytest.raises(ValueError, match="at least 1"):
        PROFILE.fit("cpu", 0)


def test_the_offset_of_an_op_is_that_of_its_closest_name_and_all_become_slower_together() -> None:
    names = ("aten::mm.rows", "aten::mm"), ("aten::addmm:bfloat16",), ("aten::bmm",)
    for offsets, expected in (
        (FAMILY_OF_CPU.offsets, [0.1, -1.2, -0.02]),
        ({}, [0.0, 0.0, 0.0]),
        ({"aten::mm": 0.1}, [0.1, 0.0, 0.0]),
    ):
        family = replace(FAMILY_OF_CPU, offsets=offsets)
        assert [family.offset(name) for name in names] == expected
        slower = [family.times(2.0).offset(name) for name in names]
        assert slower == pytest.approx([offset + math.log(2.0) for offset in expected])


def test_what_is_not_there_says_what_to_run(tmp_path: Path) -> None:
    for source, says in (
        (None, "run: placer calibrate"),
        ("nobody-has-this", "nobody-has-this"),
        ("n.json", "--output"),
    ):
        with pytest.raises(ProfileMissing, match=says):
            profiles.load(tmp_path / source if source == "n.json" else source)
    with pytest.raises(ProfileError, match="not a regular file"):
        profiles.load(tmp_path)


# --- damage ---------------------------------------------------------------------------------------


def test_versions_have_their_own_errors() -> None:
    for version, error, says in (
        (profiles.SCHEMA + 1, ProfileTooNew, "upgrade placer"),
        (profiles.OLDEST_SCHEMA - 1, ProfileTooOld, "run: placer calibrate"),
    ):
        with pytest.raises(error, match=says):
            decode(json.dumps({**document(), "schema": version, "more": {}}).encode(), "p")


FAMILY = ("fits", 0, "families", "matmul")
WRONG: list[tuple[tuple[Any, ...], Any]] = [
    (("created",), 5), (("created",), "a\nb"), (("created",), "a\n"), (("created",), "\x1b[31m"),
    (("created",), "x" * 1001), (("complete",), 1), (("seconds",), -1), (("seconds",), "1"), (("seconds",), True),
    (("warnings",), "text"), (("warnings",), [1]), (("noise",), []), (("noise", "median_spread"), -0.1),
    (("fingerprint",), []), (("fingerprint", "memory"), 1e999), (("fingerprint", "deep"), {"a": [{"b": "\x07"}]}),
    (("fingerprint", "accelerators"), [3]), (("fingerprint", "accelerators"), [{"name": "Test GPU"}]),
    (("fingerprint", "memory_bytes"), "much"), (("fits", 0, "framework"), {"kernels/aten::mm": 1e12}),
    (("fits", 0, "framework"), {"step": -1.0}), (("fits", 0, "interval"), {"base": -1.0}),
    (("fits",), {}), (("fits", 0), None), (("fits", 1, "threads"), 1), (("fits", 0, "threads"), 0),
    (("fits", 0, "threads"), 1.0), (("fits", 0, "threads"), True), (("fits", 0, "device"), "CPU one"),
    (("fits", 0, "device"), "../cpu"), (("fits", 0, "device"), "cpu\n"), (("fits", 0, "rates", "flops/float32"), -1),
    (("fits", 0, "rates", "x"), 10**400), (("fits", 0, "interval"), {"a": None}),
    (("fits", 0, "families"), []), (FAMILY, 3),
    ((*FAMILY, "numbers"), "AACAPw=="), ((*FAMILY, "numbers"), [[1.0]]), ((*FAMILY, "numbers", 0), None),
    ((*FAMILY, "numbers", 0), 1e999), ((*FAMILY, "numbers"), [0.0] * 65), ((*FAMILY, "offsets"), [0.1]),
    ((*FAMILY, "offsets", "aten::mm"), "0"), ((*FAMILY, "offsets", "aten::mm"), 1.001 * MOST_OFFSET),
    ((*FAMILY, "offsets", "aten::mm"), -1.001 * MOST_OFFSET), ((*FAMILY, "offsets"), {"aten::mm\n": 0.1}),
    ((*FAMILY, "sigma"), -0.1), ((*FAMILY, "sigma"), 1e999), ((*FAMILY, "sigma"), None),
    ((*FAMILY, "measured"), -1), ((*FAMILY, "measured"), 1.5), (("fits", 0, "reference"), None),
    (("fits", 0, "edition"), -1), (("fits", 0, "edition"), 0.5), (("fits", 0, "edition"), None),
    (("fits", 2, "gpu"), 4),
    (("unusable",), {"CUDA": "why"}), (("unusable",), {"cuda": 3}), (("unusable",), {"cuda": "a\nb"}),
    (("unusable",), ["cuda"]),
]  # fmt: skip


def shown(item: object) -> str:
    return str(item)[:40].encode("ascii", "replace").decode()


@pytest.mark.parametrize(("place", "value"), WRONG, ids=shown)
def test_a_wrong_value_is_named(place: tuple[Any, ...], value: Any) -> None:
    broken: Any = document()
    target = broken
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    named = place[len(FAMILY)] if place[: len(FAMILY)] == FAMILY != place else place[0]
    with pytest.raises(ProfileDamaged, match=rf"^p is damaged: .*\b{named}\b.*placer calibrate$"):
        decode(json.dumps(broken).replace("Infinity", "1e999").encode(), "p")


@pytest.mark.parametrize("place", [(), ("fits", 0), FAMILY], ids=shown)
def test_missing_and_unknown_keys_are_named(place: tuple[Any, ...]) -> None:
    broken: Any = document()
    target = broken
    for step in place:
        target = target[step]
    for key in target.keys() - {"format", "schema", "gpu", "edition"}:
        value = target.pop(key)
        with pytest.raises(ProfileDamaged, match=f"missing required field `{key}`"):
            decode(json.dumps(broken).encode(), "p")
        target[key] = value
    target["surprise"] = 1
    with pytest.raises(ProfileDamaged, match="unknown field `surprise`"):
        decode(json.dumps(broken).encode(), "p")


# --- saving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": float("nan")},
        {"fingerprint": {"x": float("inf")}},
        {"fingerprint": {"x": object()}},
        {"warnings": ("two\nlines",)},
        {"noise": {"a": -1.0}},
        {"fingerprint": {"x": "\ud800"}},
        {"fits": (Device("cpu", 1, {}, {"view": FamilyFit((), {"aten::t": 2.0 * MOST_OFFSET}, 0.1, 1)}, {}, {}),)},
        {"fits": (Device("cpu", 1, {}, {"view": FamilyFit((float("nan"),), {}, 0.1, 1)}, {}, {}),)},
    ],
)
def test_what_could_not_be_read_back_is_not_written(change: dict[str, Any]) -> None:
    path = profiles.save(PROFILE)
    before = path.read_bytes()
    with pytest.raises(ProfileError, match="refusing to write"):
        profiles.save(replace(PROFILE, **change))
    assert path.read_bytes() == before


@pytest.mark.parametrize("step", ["open", "fdopen", "fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_save_that_stops_half_way_keeps_the_old_file(
    step: str, failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = profiles.save(PROFILE)
    before = path.read_bytes()

    def fail(*_: Any, **__: Any) -> None:
        raise failure

    with monkeypatch.context() as patch:
        if step == "replace":
            patch.setattr(Path, "replace", fail)
        else:
            patch.setattr(store.os, step, fail)
        with pytest.raises((ProfileError, KeyboardInterrupt)) as caught:
            profiles.save(replace(PROFILE, seconds=99.0))
    if isinstance(failure, OSError):
        assert "cannot write profile" in str(caught.value)
        assert "No space left on device" in str(caught.value)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_saving_follows_a_link_and_honours_the_umask(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    link.symlink_to(real)
    old = os.umask(0o027)
    try:
        profiles.save(PROFILE, link)
    finally:
        os.umask(old)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640


# --- staleness ------------------------------------------------------------------------------------

GPU = {"device": "cuda", "name": "Test GPU", "memory_bytes": 8 * 2**30, "driver": "550.1"}
THEN = {
    "cpu": "Test CPU", "cores": 4, "memory_bytes": 16 * 2**30, "accelerators": [GPU], "torch": "2.11.0", "threads": 4,
    "cpu_version": "family 25 model 1", "cpu_instructions": "AVX2",
    "matmul_precision": "highest", "tf32_matmul": False, "tf32_convolution": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ()),
        ({"torch": "2.13.0"}, ("torch: 2.11.0 -> 2.13.0",)),
        ({"cores": 2, "cpu": "B"}, ("CPU: Test CPU -> B", "usable cores: 4 -> 2")),
        (
            {"cpu_version": "family 25 model 17", "cpu_instructions": "AVX512"},
            ("CPU version: family 25 model 1 -> family 25 model 17", "CPU instructions: AVX2 -> AVX512"),
        ),
        ({"memory_bytes": 15.9 * 2**30}, ()),
        ({"memory_bytes": 8 * 2**30}, ("memory: 16.0 GiB -> 8.0 GiB",)),
        ({"matmul_precision": "high", "tf32_matmul": True, "tf32_convolution": False}, ()),
        ({"threads": 2}, ()),
        ({"threads": 8}, ("threads: 4 -> 8",)),
        ({"accelerators": []}, ()),
        ({"accelerators": [{**GPU, "driver": "560"}]}, ("driver of cuda: 550.1 -> 560",)),
        ({"accelerators": [{**GPU, "name": "Other"}]}, ("name of cuda: Test GPU -> Other",)),
        ({"accelerators": [{**GPU, "memory_bytes": 2**30}]}, ("memory of cuda: 8.0 GiB -> 1.0 GiB",)),
        ({"accelerators": [GPU, {**GPU, "device": "cuda:1"}]}, ()),
        ({"accelerators": [GPU, {**GPU, "device": "cuda:1", "name": "B"}]}, ("accelerator cuda:1: none -> B",)),
        ({"accelerators": [{**GPU, "memory_bytes": 0}]}, ()),
    ],
)
def test_stale_fields_name_the_field_and_both_values(change: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert profiles.stale_fields(replace(PROFILE, fingerprint=THEN), {**THEN, **change}) == expected


def test_no_field_of_the_fingerprint_is_forgotten() -> None:
    assert set(machine.fingerprint()) <= set(THEN)
    for field in THEN.keys() - {"accelerators", "matmul_precision", "tf32_matmul", "tf32_convolution"}:
        value: Any = THEN[field]
        changed = value * 3 + 1 if isinstance(value, int) else f"other {value}"
        assert len(profiles.stale_fields(replace(PROFILE, fingerprint=THEN), {**THEN, field: changed})) == 1, field


def test_showing_and_hiding_devices_is_not_staleness() -> None:
    other = {**GPU, "device": "cuda:1", "name": "Other"}
    profile = replace(PROFILE, fingerprint={**THEN, "accelerators": [GPU, other]})
    shown_first = [{**other, "device": "cuda"}]  # CUDA_VISIBLE_DEVICES=1
    assert profiles.stale_fields(profile, {**THEN, "accelerators": shown_first}) == ()
    newer = [{**other, "device": "cuda", "driver": "560"}]
    assert profiles.stale_fields(profile, {**THEN, "accelerators": newer}) == ("driver of cuda: 550.1 -> 560",)
