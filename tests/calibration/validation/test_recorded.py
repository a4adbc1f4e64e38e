"""What predicts a record: fits of journals, which are kept, and packed profiles."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from placer import profile as profiles
from placer.calibration.measuring.journal import Journal
from placer.calibration.validation import recorded
from placer.errors import CalibrationError, ProfileDamaged
from placer.pricing import CostModel
from placer.profile import Profile
from placer.profile.schema import encode

RECORDS = Path(__file__).parents[3] / "calibration" / "records"
JOURNAL = RECORDS / "nvidia-h200-16-core-second" / "calibration.journal.xz"


def refused(*_: object, **__: object) -> Profile:
    raise AssertionError("this was fitted already")


def test_a_fit_is_made_once_for_a_journal_and_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    first = recorded.fitted(JOURNAL)
    assert {(fit.device, fit.threads) for fit in first.fits} == {("cpu", 1), ("cpu", 16), ("cuda", 16)}
    assert len(encode(first)) <= 100_000
    assert first.fingerprint["accelerators"][0]["name"] == "NVIDIA H200"
    monkeypatch.setattr(recorded, "build", refused)
    again = recorded.fitted(JOURNAL)
    assert (again.created, again.fits) == (first.created, first.fits)
    monkeypatch.setattr(recorded, "code_digest", lambda: "another code")
    with pytest.raises(AssertionError, match="fitted already"):
        recorded.fitted(JOURNAL)


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
    assert kept.fits == known.fits
    assert recorded.kept_profile(tmp_path, "") is None


def test_a_damaged_packed_profile_or_one_that_unpacks_to_a_huge_one_is_told(
    handmade_profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = recorded.pack(profiles.save(handmade_profile, tmp_path / "profile.json"))
    whole = packed.read_bytes()
    for content in (whole[:-20], whole[:8], whole[:60] + b"\x00" * 20 + whole[80:]):
        packed.write_bytes(content)
        with pytest.raises(ProfileDamaged, match="placer calibrate"):
            profiles.load(packed)
    packed.write_bytes(whole)
    monkeypatch.setattr(profiles.store, "MAX_BYTES", len(whole))  # less than what is packed in it
    with pytest.raises(ProfileDamaged, match="larger than"):
        profiles.load(packed)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_minute_brings_the_prices_of_its_ops_closer(threads: int, tmp_path: Path) -> None:
    """The record's machine is of the class of a shipped profile, and every op counts the same."""
    packed = RECORDS / "cpu-avx512-2-core-november" / "calibration.journal.xz"
    found = recorded.fitted(packed).fit("cpu", threads)
    assert found.reference in profiles.shipped()
    started_from = profiles.load(found.reference).fit("cpu", threads)
    lines, plain = lzma.decompress(packed.read_bytes()), tmp_path / recorded.JOURNAL
    plain.write_bytes(lines)
    journal = Journal(plain, json.loads(lines.partition(b"\n")[0])["fingerprint"], existing=True)
    ops = [op for step in journal.of("cpu", threads) for op in step.ops if op.seconds]
    assert len(ops) > 1000
    logs, works = np.log([op.seconds or 0.0 for op in ops]), [op.work() for op in ops]
    before, after = (np.abs(np.log(CostModel(fit).price_works(works)[0]) - logs) for fit in (started_from, found))
    assert np.median(after) < np.median(before)
    assert np.mean(after) < np.mean(before)
