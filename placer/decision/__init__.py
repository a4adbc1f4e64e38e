"""Predictions -> Decision: which device, how sure, and with how many threads."""

from placer.decision import history, measured, ranks
from placer.decision.advice import LEAST_GAIN, Advice, advise, batch_size, with_batch
from placer.decision.candidates import lacks, unusable
from placer.decision.comparison import Comparison, compare, home, without_maker
from placer.decision.convention import conventional, reachable
from placer.decision.decision import (
    ABOUT_THE_SAME,
    SAME,
    SURE,
    Decision,
    Point,
    break_even_steps,
    decide,
    pareto,
    probability_faster,
    trade,
)
from placer.decision.measured import plan_for, with_race, with_seen
from placer.decision.objective import (
    MANY,
    OBJECTIVES,
    TIE,
    TIME,
    Objective,
    Unit,
    counted_seconds,
    is_cpu,
    objective_of,
)
from placer.decision.plan import Plan, decided, described, make_plan, only_placer_errors, with_occupied
from placer.decision.request import Asked, Request, asked, check, present_profile, profile_named, say_estimated
from placer.decision.threads import ThreadOption, best_count, running_with
from placer.decision.totals import Total, total

__all__ = [
    "ABOUT_THE_SAME",
    "Advice",
    "Asked",
    "Comparison",
    "Decision",
    "LEAST_GAIN",
    "MANY",
    "OBJECTIVES",
    "Objective",
    "Plan",
    "Point",
    "Request",
    "SAME",
    "SURE",
    "TIE",
    "TIME",
    "ThreadOption",
    "Total",
    "Unit",
    "advise",
    "asked",
    "batch_size",
    "best_count",
    "break_even_steps",
    "check",
    "compare",
    "conventional",
    "counted_seconds",
    "decide",
    "decided",
    "described",
    "history",
    "home",
    "is_cpu",
    "lacks",
    "make_plan",
    "objective_of",
    "only_placer_errors",
    "measured",
    "pareto",
    "plan_for",
    "present_profile",
    "probability_faster",
    "profile_named",
    "ranks",
    "reachable",
    "running_with",
    "say_estimated",
    "total",
    "trade",
    "unusable",
    "with_batch",
    "with_occupied",
    "with_race",
    "with_seen",
    "without_maker",
]
