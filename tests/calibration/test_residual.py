"""A residual that has learnt from more points than it keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from placer.calibration.residual import _condensed
from placer.gaussian_process import Array, Residual
from placer.profile import FamilyFit

POINTS, KEPT, NOISE = 600, 60, 0.04
Points = tuple[Array, Array]


def truth(x: Array) -> Array:
    return np.asarray(np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1])


@pytest.fixture(scope="module")
def full() -> Residual:
    random = np.random.default_rng(7)
    x = random.uniform(0, 4, (POINTS, 2))
    y = truth(x) + random.normal(0, NOISE**0.5, POINTS)
    return Residual(
        FamilyFit(
            feature_names=("a", "b"), ops=("add",), x=tuple(map(tuple, x.tolist())), op_index=(0,) * POINTS,
            y=tuple(y.tolist()), point_noise=(NOISE,) * POINTS, length_scales=(2.0, 4.0), op_scale=1.0, mean=0.5,
            signal=1.0, noise=NOISE, parameters={}, measured=POINTS,
        )
    )  # fmt: skip


@pytest.fixture
def unseen() -> Array:
    return np.random.default_rng(8).uniform(0, 4, (200, 2))


def error(residual: Residual, x: Array) -> float:
    mean, _ = residual.predict(x, np.zeros(len(x), dtype=np.int64))
    return float(np.median(np.abs(mean - truth(x))))


def test_few_points_say_what_all_of_them_do(full: Residual, unseen: Array) -> None:
    few = _condensed(full, KEPT)
    assert len(few.fit.y) == len(few.fit.x) == len(few.fit.point_noise) == KEPT
    assert error(few, unseen) < 1.25 * error(full, unseen)


def test_what_is_not_kept_is_not_lost(full: Residual, unseen: Array) -> None:
    fit = full.fit
    dropped = Residual(
        replace(
            fit, x=fit.x[:KEPT], y=fit.y[:KEPT], op_index=fit.op_index[:KEPT], point_noise=fit.point_noise[:KEPT]
        )
    )
    assert error(_condensed(full, KEPT), unseen) < 0.75 * error(dropped, unseen)


def test_the_doubt_that_is_left_goes_into_the_noise(full: Residual) -> None:
    few = _condensed(full, KEPT)
    assert NOISE < few.fit.noise < 2 * NOISE


def test_what_fits_already_stays_as_it_is(full: Residual) -> None:
    assert _condensed(full, POINTS) is full
