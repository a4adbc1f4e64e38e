"""Makes plans: traces one step, prices it on every device that is compared, and decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from placer import tracing
from placer.decision.comparison import Comparison
from placer.decision.occupied import with_occupied
from placer.decision.plan import Plan
from placer.decision.planning import decided
from placer.decision.real_times import with_race, with_seen
from placer.decision.request import Request
from placer.errors import PlacerError, first_line
from placer.workload import Workload


def make_plan(workload: Workload, comparison: Comparison) -> Plan:
    """Trace one step, price it on every device, decide. Raises TraceError, ProfileError, or another PlacerError."""
    with only_placer_errors():
        traced = tracing.trace(workload)
        return decided(workload, traced, comparison, comparison.price(traced, workload))


def plan_for(request: Request) -> Plan:
    """The plan for a request, with what is known of busy devices and of real step times. Raises PlacerError."""
    workload = request.workload
    with only_placer_errors():
        plan = with_occupied(make_plan(workload, request.comparison()))
        plan = plan if request.measure == "never" else with_race(plan, workload, request.measure)
        return with_seen(plan, workload.steps)


@contextlib.contextmanager
def only_placer_errors() -> Iterator[None]:
    """The boundary of "choose never breaks a training script": pricing sees ops nobody foresaw.

    What it raises must end in a warning, not in a crash.
    """
    try:
        yield
    except PlacerError:
        raise
    except Exception as error:
        raise PlacerError(f"pricing failed with {type(error).__name__}: {first_line(error)}") from error
