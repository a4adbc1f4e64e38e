"""A save and a crash, a full disk, a folder that is not there: the old content or the new, and never an end."""

from __future__ import annotations

import errno
import os
import re
import signal
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from busy_store import together
from killed_writer import replaced
from torch import nn

import placer
from placer import profile as profiles
from placer.decision import history
from placer.machine import machine_id
from placer.profile import store
from placer.profile.profile import Profile

posix = pytest.mark.skipif(os.name != "posix", reason="forks, and kills itself")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # beside threads
#: A save that is done after fewer operations than this is not the one that was looked at.
LEAST_OPERATIONS = 8


@posix
@pytest.mark.parametrize("first", [False, True])
def test_kill_9_before_any_file_operation_leaves_the_old_profile_or_the_new(
    first: bool, handmade_profile: Profile, tmp_path: Path
) -> None:
    """Where it is the first one, the old one is none."""
    old, new = (replace(handmade_profile, seconds=seconds) for seconds in (10.0, 99.0))
    data = profiles.save(new, tmp_path / "new.json").read_bytes()
    seen = []
    for nth in range(1, 100):
        target = tmp_path / str(nth) / "p.json"
        if not first:
            profiles.save(old, target)
        ended = replaced(target, data, nth)
        after = replace(profiles.load(target), name="") if not first or target.exists() else None
        assert after in (None if first else old, new), nth
        seen.append(0.0 if after is None else after.seconds)
        if ended > 0:
            break
        assert ended == -signal.SIGKILL
    assert len(seen) > LEAST_OPERATIONS
    assert seen == sorted(seen)  # old, up to the rename; new from there on
    assert set(seen) == {0.0 if first else old.seconds, new.seconds}


@posix
def test_processes_reading_and_writing_together_see_whole_profiles(handmade_profile: Profile, tmp_path: Path) -> None:
    for writes, reads in together(handmade_profile, tmp_path, processes=3, seconds=0.5):
        assert writes > 0
        assert reads > writes


# --- a place that cannot be used ----------------------------------------------------------------------------------


def refusing(number: int) -> Callable[..., Any]:
    """os.open, which serves reading as ever and refuses to write to anything but the null device."""
    original = os.open

    def open_(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and path != os.devnull:
            raise OSError(number, os.strerror(number), path)
        return original(path, flags, *rest, **named)

    return open_


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_choose_answers_where_nothing_can_be_written(
    number: int, calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.os, "open", refusing(number))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for rows in (8, 16):  # the prediction is there, and one word in a process is enough
            assert placer.choose(nn.Linear(4, 2), (rows, 4), devices=["cpu"]).confidence is not None
    (warning,) = seen
    assert warning.category is placer.PlacerWarning
    assert re.search(rf"cannot write .*{os.strerror(number)}.*PLACER_HOME", str(warning.message))
    assert warning.filename == __file__
    assert history.last() == []
    with pytest.raises(placer.ProfileError, match="cannot write profile"):
        profiles.save(calibrated)
    assert profiles.load() == calibrated


@pytest.mark.parametrize("home", ["~nobody-has-this-name/data", "\udcff", "x" * 5000, "/proc/none", "/dev/null/x"])
def test_a_home_that_cannot_be_is_an_answer_and_one_warning(
    home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # some of them are names in the present folder
    monkeypatch.setenv("PLACER_HOME", home)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        placement = placer.choose(nn.Linear(4, 2), (8, 4), devices=["cpu"])
    assert (placement.decision.device, placement.provenance) == ("cpu", "published")
    (said,) = [str(warning.message) for warning in seen if "are not kept" not in str(warning.message)]
    assert re.search("placer calibrate|cannot read profile", said)


def test_a_profile_that_may_not_be_read_is_an_answer_and_one_warning(
    calibrated: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = os.open

    def denied(path: Any, *rest: Any, **named: Any) -> int:
        if str(path).endswith(".json"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return original(path, *rest, **named)

    monkeypatch.setattr(os, "open", denied)
    os.utime(profiles.default_path(), (1, 1))  # another time stamp: what was read before is not taken
    with pytest.warns(placer.PlacerWarning, match=r"cannot read profile .*Permission denied") as seen:
        assert placer.choose(nn.Linear(4, 2), (8, 4), devices=["cpu"]).decision.device == "cpu"
    assert len(seen) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", ["mkfifo", "mkdir"])
@pytest.mark.parametrize("name", ["history.jsonl", "speeds", "profiles"])
def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_not_waited_for(name: str, make: str, placer_home: Path) -> None:
    path = placer_home / name if name == "history.jsonl" else placer_home / name / f"{machine_id()}.json"
    path.parent.mkdir(exist_ok=True)
    getattr(os, make)(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", placer.PlacerWarning)
        assert placer.choose(nn.Linear(4, 2), (8, 4), devices=["cpu"]).predictions
    assert bool(history.last()) == (name != "history.jsonl")
