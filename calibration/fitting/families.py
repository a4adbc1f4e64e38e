"""Fits every op family of a device, each from its own samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from placer.calibration.fitting.comparison import Comparison
from placer.calibration.fitting.difference import DifferenceHyperparameters
from placer.calibration.fitting.expectation import Expectation
from placer.calibration.fitting.family import fit_family
from placer.calibration.fitting.kernel import Hyperparameters
from placer.calibration.fitting.measured_ops import MeasuredOp
from placer.calibration.fitting.parallel import run_all
from placer.calibration.fitting.transfer import transfer_family
from placer.profile import DeviceFit, FamilyFit

#: Fewer ops than this teach nothing: the family stays at its floor.
LEAST_POINTS = 8


@dataclass(frozen=True)
class ChosenHyperparameters:
    """Hyperparameters by family: of residuals, and of differences to another machine.

    They are chosen once and used again for other steps, or another number of threads: what varies with what is the same
    then, and choosing them is most of the work.
    """

    residuals: dict[str, Hyperparameters] = field(default_factory=dict)
    differences: dict[str, DifferenceHyperparameters] = field(default_factory=dict)


def fit_families(
    measured: Mapping[str, Sequence[MeasuredOp]],
    empty: DeviceFit,
    chosen: ChosenHyperparameters,
    transfer_from: tuple[Expectation, Comparison] | None,
    workers: int,
) -> dict[str, FamilyFit]:
    """The fit of each family with enough ops, and of all that another machine knows (``transfer_from``).

    ``empty`` has the device's rates. ``chosen`` is used, and takes what is chosen here.
    """
    known = transfer_from[0].families if transfer_from is not None else {}
    fits: dict[str, Callable[[], tuple[FamilyFit, Hyperparameters | DifferenceHyperparameters | None]]] = {
        family: partial(fit_family, family, ops, empty, chosen.residuals.get(family))
        for family, ops in measured.items()
        if len(ops) >= LEAST_POINTS and family not in known
    }
    if transfer_from is not None:
        expected, overall = transfer_from
        for family in known:
            before = chosen.differences.get(family)
            ops, part = measured.get(family, []), expected.of_family(family)
            fits[family] = partial(transfer_family, family, ops, empty, before, part, overall)

    def size(family: str) -> int:
        return len(measured.get(family, ())) + (len(known[family].y) if family in known else 0)

    largest_first = sorted(fits, key=size, reverse=True)  # no worker is left with the longest fit at the end
    found = dict(zip(largest_first, run_all([fits[family] for family in largest_first], workers), strict=True))
    for family, (_, used) in found.items():
        if isinstance(used, Hyperparameters):
            chosen.residuals[family] = used
        elif used is not None:
            chosen.differences[family] = used
    # Made anew: what comes from another process has lost its arrays' write protection.
    return {family: replace(found[family][0]) for family in fits}
