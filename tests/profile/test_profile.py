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


def make_profile(**changes: Any) -> Profile:
    family = FamilyFit(
        numbers=(1.5, -0.25, 0.0),
        offsets={"": -0.02, "aten::mm": 0.1, "aten::addmm:bfloat16": -1.2},
        sigma=0.2,
        measured=3,
    )
    of_gpu = FamilyFit(numbers=(), offsets={"aten::mm": 0.05}, sigma=0.1, measured=1)
    fits = (
        Device(
            "cpu",
            1,
            {"flops/float32": 5e10},
            {"matmul": family},
            {"call_seconds": 1e-6},
            {"scale": 1.1},
            "far",
            edition=2**32 - 1,
        ),
        Device("cpu", 4, {"flops/float32": 2e11}, {"matmul": family}, {}, {}),
        Device("cuda", 4, {"flops/float32": 5e13}, {"matmul": of_gpu}, {}, {}, gpu="Tesla T4", edition=7),
    )
    return replace(
        Profile(
            schema=profiles.SCHEMA,
            created="2026-01-02T03:04:05+00:00",
            fingerprint={"cpu": "Test CPU", "threads": 4, "accelerators": [{"device": "cuda", "name": "Test GPU"}]},
            fits=fits,
            noise={"median_spread": 0.02},
            warnings=("a busy machine",),
            complete=True,
            seconds=12.5,
        ),
        **changes,
    )


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(encode(make_profile()))
    return loaded


def written(path: Path, content: bytes | dict[str, Any]) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


# --- round trip -----------------------------------------------------------------------------------


def test_a_saved_profile_loads_equal(placer_home: Path) -> None:
    profile = make_profile()
    path = profiles.save(profile)
    assert path == profiles.default_path()
    assert path.is_relative_to(placer_home)
    loaded = profiles.load()
    assert replace(loaded, name="") == profile
    assert loaded.name == str(path)


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
    fit = replace(make_profile().fits[0], rates=rates, families={"matmul": family}, edition=edition)
    loaded = decode(encode(make_profile(fits=(fit,))), "p")
    (found,) = loaded.fits
    assert (found.rates, found.edition) == (rates, edition)
    got = found.families["matmul"]
    assert got.numbers == pytest.approx(family.numbers, rel=1e-12, abs=1e-4)
    assert got.offsets == pytest.approx(offsets, abs=1e-4)
    assert (got.sigma, got.measured) == (pytest.approx(sigma, rel=1e-12, abs=1e-4), len(offsets))
    assert decode(encode(loaded), "p") == loaded


# --- looking things up ----------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "got"), [(None, 4), (1, 1), (2, 1), (3, 4), (4, 4), (64, 4)])
def test_fit_takes_the_nearest_thread_count(asked: int | None, got: int) -> None:
    assert make_profile().fit("cpu", asked).threads == got


def test_the_offset_of_an_op_is_that_of_its_closest_name_and_all_become_slower_together() -> None:
    family = make_profile().fits[0].families["matmul"]
    names = ("aten::mm.rows", "aten::mm"), ("aten::addmm:bfloat16",), ("aten::bmm",)
    assert [family.offset(each) for each in names] == [0.1, -1.2, -0.02]
    assert replace(family, offsets={}).offset(("aten::mm",)) == 0.0
    for known in (family, replace(family, offsets={}), replace(family, offsets={"aten::mm": 0.1})):
        twice = known.times(2.0)
        for each in names:
            assert twice.offset(each) == pytest.approx(known.offset(each) + math.log(2.0))


def test_fit_refuses_what_is_not_there() -> None:
    assert (make_profile().threads("cuda:0"), make_profile().threads("mps")) == ((4,), ())
    with pytest.raises(ProfileError, match=r"'mps' is not calibrated .*calibrated: cpu, cuda.*--device mps"):
        make_profile().fit("mps")
    with pytest.raises(ValueError, match="at least 1"):
        make_profile().fit("cpu", 0)


def test_sources(placer_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = make_profile()
    mine = profiles.save(profile, profiles.named_path("lab-gpu"))
    assert mine.parent == profiles.profiles_folder()
    assert profiles.imported() == ("lab-gpu",)
    assert profiles.load("lab-gpu").name == "lab-gpu"
    elsewhere = profiles.save(profile, tmp_path / "p.json")
    assert profiles.load(elsewhere).name == str(elsewhere)
    monkeypatch.chdir(tmp_path)
    assert profiles.load("p.json").created == profile.created


def test_shipped_profiles_load() -> None:
    for name in profiles.shipped():
        assert profiles.load(name).devices()


def test_missing_profiles_say_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ProfileMissing, match="run: placer calibrate"):
        profiles.load()
    with pytest.raises(ProfileMissing, match="nobody-has-this"):
        profiles.load("nobody-has-this")
    with pytest.raises(ProfileMissing, match="--output"):
        profiles.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    "name", ["..", "a..b", "", ".hidden", "a\\b:c", "a\0b", "x" * 81, "naïve", "-option", "a b", "a\n"]
)
def test_a_name_is_not_a_path(name: str) -> None:
    with pytest.raises(ValueError, match="not a profile name"):
        profiles.named_path(name)


# --- damage ---------------------------------------------------------------------------------------


def test_measured_ops_that_earlier_versions_kept_are_passed_over() -> None:
    row = {"device": "cpu", "threads": 2, "family": "matmul", "ops": ["aten::mm"], "rows": [[0, 1e-5, 0, 0.02, 11, 32]]}
    other = json.dumps({**document(), "samples": [row]}, indent=1, sort_keys=True).encode()  # another layout
    assert decode(other, "p") == make_profile()


@pytest.mark.parametrize(
    "content",
    [
        b"null",
        b"42",
        b"\x80\x03]q\x00.",
        b"{}{}",
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b"1" * 10_000,
        b'{"format": "placer machine profile", "schema": true}',
        b'{"format": "placer machine profile", "schema": "1"}',
    ],
)
def test_what_is_no_profile_at_all(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ProfileDamaged, match=r"p\.json"):
        profiles.load(written(tmp_path / "p.json", content))


def test_versions_have_their_own_errors(tmp_path: Path) -> None:
    base = document()
    with pytest.raises(ProfileTooNew, match="upgrade placer"):
        profiles.load(written(tmp_path / "new.json", {**base, "schema": profiles.SCHEMA + 1, "more": {}}))
    with pytest.raises(ProfileTooOld, match="run: placer calibrate"):
        profiles.load(written(tmp_path / "old.json", {**base, "schema": profiles.OLDEST_SCHEMA - 1}))


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


def test_unreadable_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProfileError, match="not a regular file"):
        profiles.load(tmp_path)
    monkeypatch.setattr(store, "MAX_BYTES", 100)
    with pytest.raises(ProfileDamaged, match="larger than"):
        profiles.load(written(tmp_path / "p.json", encode(make_profile())))


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
    path = profiles.save(make_profile())
    before = path.read_bytes()
    with pytest.raises(ProfileError, match="refusing to write"):
        profiles.save(make_profile(**change))
    assert path.read_bytes() == before


@pytest.mark.parametrize("step", ["open", "fdopen", "fsync", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_save_that_stops_half_way_keeps_the_old_file(
    step: str, failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = profiles.save(make_profile())
    before = path.read_bytes()

    def fail(*_: Any, **__: Any) -> None:
        raise failure

    with monkeypatch.context() as patch:
        if step == "replace":
            patch.setattr(Path, "replace", fail)
        else:
            patch.setattr(store.os, step, fail)
        with pytest.raises((ProfileError, KeyboardInterrupt)) as caught:
            profiles.save(make_profile(seconds=99.0))
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
        profiles.save(make_profile(), link)
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
    assert profiles.stale_fields(make_profile(fingerprint=THEN), {**THEN, **change}) == expected


def test_no_field_of_the_fingerprint_is_forgotten() -> None:
    assert set(machine.fingerprint()) <= set(THEN)
    for field in THEN.keys() - {"accelerators", "matmul_precision", "tf32_matmul", "tf32_convolution"}:
        value: Any = THEN[field]
        changed = value * 3 + 1 if isinstance(value, int) else f"other {value}"
        assert len(profiles.stale_fields(make_profile(fingerprint=THEN), {**THEN, field: changed})) == 1, field


def test_showing_and_hiding_devices_is_not_staleness() -> None:
    other = {**GPU, "device": "cuda:1", "name": "Other"}
    profile = make_profile(fingerprint={**THEN, "accelerators": [GPU, other]})
    shown_first = [{**other, "device": "cuda"}]  # CUDA_VISIBLE_DEVICES=1
    assert profiles.stale_fields(profile, {**THEN, "accelerators": shown_first}) == ()
    newer = [{**other, "device": "cuda", "driver": "560"}]
    assert profiles.stale_fields(profile, {**THEN, "accelerators": newer}) == ("driver of cuda: 550.1 -> 560",)


# --- devices that cannot be used ------------------------------------------------------------------


def test_devices_that_cannot_be_used_are_kept_with_the_reason(tmp_path: Path) -> None:
    profile = make_profile(unusable={"cuda": "RuntimeError: no kernel image is available"})
    path = profiles.save(profile, tmp_path / "p.json")
    assert profiles.load(path).unusable == profile.unusable
    assert profiles.load(path).unusable == profile.unusable
    plain = profiles.save(make_profile(), tmp_path / "plain.json")
    assert b"unusable" not in plain.read_bytes()  # earlier versions of placer read it
    assert profiles.load(plain).unusable == {}
