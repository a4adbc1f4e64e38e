"""What predicts a record: fits of journals, which are kept, and packed profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from placer import profile as profiles
from placer.calibration.measuring.journal import Journal
from placer.calibration.validation import recorded
from placer.errors import CalibrationError, ProfileDamaged
from placer.profile import Profile

RECORDS = Path(__file__).parents[3] / "calibration" / "records"
JOURNAL = RECORDS / "nvidia-h200-16-core-second" / "calibration.journal.xz"


def refused(*_: object, **__: object) -> Profile:
    raise AssertionError("this was fitted already")


def test_a_fit_is_made_once_for_a_journal_and_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    first = recorded.fitted(JOURNAL)
    assert {(fit.device, fit.threads) for fit in first.fits} == {("cpu", 1), ("cpu", 16), ("cuda", 16)}
    assert first.fingerprint["accelerators"][0]["name"] == "NVIDIA H200"
    monkeypatch.setattr(recorded, "build", refused)
    again = recorded.fitted(JOURNAL)
    assert (again.created, again.fits) == (first.created, first.fits)
    monkeypatch.setattr(recorded, "code_digest", lambda: "another code")
    with pytest.raises(AssertionError, match="fitted already"):
        recorded.fitted(JOURNAL)


def test_fits_of_many_codes_do_not_pile_up(
    handmade_profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "fits_folder", lambda: tmp_path / "fits")
    monkeypatch.setattr(recorded, "build", lambda *_, **__: handmade_profile)
    for number in range(recorded.KEPT_FITS + 3):
        monkeypatch.setattr(recorded, "code_digest", lambda number=number: f"code{number}")
        recorded.fitted(JOURNAL)
    kept = sorted(path.stem.partition("-")[2] for path in (tmp_path / "fits").glob("*.json"))
    assert len(kept) == recorded.KEPT_FITS
    assert f"code{recorded.KEPT_FITS + 2}" in kept


def test_a_journal_is_packed_when_it_is_complete(tmp_path: Path) -> None:
    assert recorded.own_fit(tmp_path) is None
    plain = tmp_path / recorded.JOURNAL
    Journal(plain, {"cpu": "some"})
    assert recorded.journal_in(tmp_path) == plain
    packed = recorded.pack(plain)
    assert recorded.journal_in(tmp_path) == packed
    assert list(tmp_path.iterdir()) == [packed]
    with pytest.raises(CalibrationError, match="too little was measured"):
        recorded.own_fit(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no journal", b"[]\n", b'{"version": 4}\n'])
def test_what_is_no_journal_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / recorded.JOURNAL
    path.write_bytes(content)
    with pytest.raises(CalibrationError, match="no journal of a calibration"):
        recorded.fitted(path)


def test_a_packed_profile_is_read_as_a_plain_one(handmade_profile: Profile, tmp_path: Path) -> None:
    plain = profiles.save(handmade_profile, tmp_path / "profile.json")
    known = profiles.load(plain)
    packed = recorded.pack(plain)
    assert packed.name == "profile.json.xz"
    read = profiles.load(packed)
    assert (read.fits, read.created, read.fingerprint) == (known.fits, known.created, known.fingerprint)
    kept = recorded.kept_profile(tmp_path, "profile.json")
    assert kept is not None
    assert kept.fits == known.fits
    assert recorded.kept_profile(tmp_path, "") is None


def test_a_damaged_packed_profile_is_told(handmade_profile: Profile, tmp_path: Path) -> None:
    packed = recorded.pack(profiles.save(handmade_profile, tmp_path / "profile.json"))
    whole = packed.read_bytes()
    for content in (whole[:-20], whole[:8], whole[:60] + b"\x00" * 20 + whole[80:]):
        packed.write_bytes(content)
        with pytest.raises(ProfileDamaged, match="placer calibrate"):
            profiles.load(packed)


def test_a_small_file_that_unpacks_to_a_huge_one_is_not_read_to_its_end(
    handmade_profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = recorded.pack(profiles.save(handmade_profile, tmp_path / "profile.json"))
    monkeypatch.setattr(profiles.store, "MAX_BYTES", packed.stat().st_size)  # less than what is packed in it
    with pytest.raises(ProfileDamaged, match="larger than"):
        profiles.load(packed)


def test_records_keep_no_fits() -> None:
    """But for those that are older than journals."""
    kept = {path.relative_to(RECORDS).as_posix() for path in RECORDS.rglob("*profile.json*")}
    assert kept == {
        "cpu-2-core/profile.json.xz", "cpu-avx512-2-core/profile.json.xz", "cpu-avx512-2-core-calm/profile.json.xz",
        "cpu-intel-avx512-2-core/reference_profile.json.xz",
    }  # fmt: skip
