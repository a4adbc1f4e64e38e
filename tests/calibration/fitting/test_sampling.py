"""Which measured points are kept."""

from __future__ import annotations

import numpy as np

from placer.calibration.fitting.family import samples, spread_out

from .made_up import steps


def test_samples_kept_are_spread_over_the_shapes() -> None:
    observed = steps(80, 6)
    kept = samples(observed, most=20)
    by_family = {name: [s for s in kept if s.family == name] for name in ("matmul", "elementwise")}
    assert all(len(members) == 20 for members in by_family.values())
    sizes = [op.features[1] for step in observed for op in step.ops if op.family == "elementwise"]
    kept_sizes = [s.features[1] for s in by_family["elementwise"]]
    assert max(kept_sizes) >= np.quantile(sizes, 0.95)
    assert min(kept_sizes) <= np.quantile(sizes, 0.05)
    assert all(s.device == "cpu" and s.host_seconds == 0.0 for s in kept)


def test_spread_out_takes_the_corners_first() -> None:
    x = np.array([[0.0], [0.1], [0.2], [10.0], [5.0]])
    same = np.zeros(5, dtype=np.int64)
    assert set(spread_out(x, same, 3).tolist()) == {0, 3, 4}
    assert len(spread_out(x, same, 99)) == 5
