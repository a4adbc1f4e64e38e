"""Whatever is in the profile's place: an answer, one warning that names the file and the remedy, nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzzing import Outcome, fuzz
from priced import family
from torch import nn

import placer
from placer import machine
from placer import profile as profiles
from placer.errors import ProfileError
from placer.pricing import CostModel
from placer.pricing.networks import cpu_edition
from placer.profile.profile import Profile
from placer.profile.schema import encode


def change(*place: str | int, value: Any) -> Callable[[bytes], bytes]:
    def apply(content: bytes) -> bytes:
        document = target = json.loads(content)
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = value
        return json.dumps(document).encode()

    return apply


@pytest.fixture
def handmade_profile(handmade_profile: Profile) -> Profile:
    """One of which networks know the families of the CPU."""
    cpu, *others = handmade_profile.fits
    learnt = {name: family(name, {"": 0.1}) for name in ("matmul", "elementwise", "view")}
    cpu = replace(cpu, families=learnt, edition=cpu_edition(), interval={**cpu.interval, "ops": 1.0})
    return replace(handmade_profile, fits=(cpu, *others))


RATES = ("fits", 0, "rates")
FAMILY = ("fits", 0, "families", "matmul")
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut short": lambda c: c[: len(c) // 2],
    "not UTF-8": lambda c: c.replace(b"cpu", b"\xff\xfe\xfd", 1),
    "another document": lambda _: b'{"a": 1}',
    "a number": lambda _: b"1" * 10_000,
    "two documents": lambda c: c + c,
    "a pickle": lambda _: b"\x80\x03]q\x00.",
    "NaN": lambda c: c.replace(b'"seconds":10.0', b'"seconds":NaN'),
    "no rate": change("fits", 0, "rates", value={}),
    "a rate of zero": change(*RATES, "bytes_per_second", value=0),
    "a huge rate": change(*RATES, "flops/float32", value=10**400),
    "a step of ages": change("fits", 0, "framework", value={"step": 1e300, "forward_op": 1e300, "python_call": 1e300}),
    "a boundless interval": change("fits", 0, "interval", value={"base": 1e300}),
    "a rate that is too small": change(*RATES, "flops/float32", value=5e-324),
    "other networks": change("fits", 0, "edition", value=1),
    "no networks": change("fits", 0, "edition", value=0),
    "too few numbers": change(*FAMILY, "numbers", value=[0.5]),
    "a boundless doubt": change(*FAMILY, "sigma", value=1e300),
    "deep nesting": lambda _: b"[" * 1_000_000,
    "deep nesting that is closed": lambda _: b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "no version": lambda c: c.replace(b'"schema":%d,' % profiles.SCHEMA, b"", 1),
    "a version that is no number": change("schema", value=True),
    "a newer version": change("schema", value=99),
    "an older version": change("schema", value=0),
}

#: Files that can be read, and hold numbers that no step can be priced with.
SENSELESS = (
    "no rate", "a rate of zero", "a step of ages", "a boundless interval", "a rate that is too small",
    "a boundless doubt",
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_choose_answers_and_warns_once(damage: str, calibrated: Profile) -> None:
    path = profiles.default_path()
    content = path.read_bytes()
    damaged = DAMAGE[damage](content)
    assert damaged != content
    path.write_bytes(damaged)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        placement = placer.choose(nn.Linear(4, 2), (8, 4), devices=["cpu"])
    assert placement.decision.device == "cpu"
    (warning,) = seen
    assert warning.category is placer.PlacerWarning
    assert str(path) in str(warning.message)
    assert "placer calibrate" in str(warning.message) or "upgrade placer" in str(warning.message)
    if damage in SENSELESS:
        assert placement.confidence is None
        with pytest.raises(ProfileError):
            placer.explain(nn.Linear(4, 2), (8, 4), devices=["cpu"])
    else:
        assert placement.provenance == "published"
        assert any(str(path) in note for note in placer.explain(nn.Linear(4, 2), (8, 4), devices=["cpu"]).notes)


#: In a process of its own: it ends where this is wrong.
DEEP = """
import json, sys
from placer.errors import ProfileDamaged
from placer.profile import schema
sys.setrecursionlimit(10**6)
document = json.loads(sys.stdin.buffer.read())
document["fingerprint"]["cpu"] = "here"
try:
    schema.decode(json.dumps(document).encode().replace(b'"here"', b"[" * 300_000 + b"]" * 300_000), "it")
except ProfileDamaged as error:
    print(error)
"""


def test_no_nesting_ends_a_program_that_raised_its_limit(handmade_profile: Profile) -> None:
    ended = subprocess.run([sys.executable, "-c", DEEP], input=encode(handmade_profile), capture_output=True)
    assert (ended.returncode, b"placer calibrate" in ended.stdout) == (0, True)


def test_100_mb_are_neither_read_nor_kept(calibrated: Profile) -> None:
    path = profiles.default_path()
    with path.open("r+b") as file:
        file.truncate(100 * 2**20)  # sparse: it takes no room on the disk
    machine.measure_speeds()  # what its first step imports is no part of the file
    tracemalloc.start()
    try:
        with pytest.warns(placer.PlacerWarning, match=r"larger than 64 MB.*placer calibrate") as seen:
            placer.choose(nn.Linear(4, 2), (8, 4), devices=["cpu"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(seen) == 1
    assert peak < 80 * 2**20


def test_a_fuzzer_finds_no_other_error(handmade_profile: Profile) -> None:
    outcome = Outcome()
    fuzz(encode(handmade_profile), 1000, outcome)
    assert outcome.inputs >= 1000
    assert 300 < outcome.refused < outcome.inputs  # most inputs are damaged, some are another valid profile


# --- formats and machines of all times ----------------------------------------------------------------------------


@pytest.mark.parametrize("schema", range(profiles.OLDEST_SCHEMA, profiles.SCHEMA + 1))
def test_profiles_of_every_released_format_load_and_price(schema: int) -> None:
    """What networks of another time said of one thread's families is refused: they are not those of this version."""
    path = Path(__file__).parent / "released" / f"schema-{schema}.json"
    loaded = profiles.load(path)
    assert loaded.devices() == ("cpu", "cuda")
    assert loaded.fit("cpu", 1).families["matmul"].offset(("aten::mm",)) == -0.25
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = placer.explain(nn.Linear(4, 2), (8, 4), profile=path)
    assert found.devices["cpu"].step_seconds > 0
    with pytest.raises(ProfileError, match="run: placer calibrate"):
        CostModel(loaded.fit("cpu", 1))
