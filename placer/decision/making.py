"""Makes plans: traces one step, prices it on every device that is compared, and decides."""

from __future__ import annotations

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
    """Trace one step, price it on every device, decide. Raises TraceError or ProfileError."""
    traced = tracing.trace(workload)
    prices = comparison.price(traced, workload)
    return decided(workload, traced, comparison, prices)


def plan_for(request: Request) -> Plan:
    """The plan for a request, with what is known of busy devices and of real step times.

    Every failure is a PlacerError.
    """
    workload = request.workload
    try:
        plan = with_occupied(make_plan(workload, request.comparison()))
        plan = plan if request.measure == "never" else with_race(plan, workload, request.measure)
        return with_seen(plan, workload.steps)
    except PlacerError:
        raise
    except Exception as error:
        # The boundary of "choose never breaks a training script": pricing sees ops nobody foresaw; what it raises
        # must end in a warning, not in a crash.
        raise PlacerError(f"pricing failed with {type(error).__name__}: {first_line(error)}") from error
