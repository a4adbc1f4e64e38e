"""The middle of the pipeline in one call, for tests of what comes before and after."""

from __future__ import annotations

from placer.decision.comparison import Comparison
from placer.decision.plan import Plan
from placer.decision.planning import decided
from placer.tracing import trace
from placer.workload import Workload


def make_plan(workload: Workload, comparison: Comparison) -> Plan:
    """Trace, price, decide."""
    traced = trace(workload)
    return decided(workload, traced, comparison, comparison.price(traced, workload))
