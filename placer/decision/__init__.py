"""Predictions -> Decision: which device, how sure, and with how many threads."""

from placer.decision import history, observed, ranks
from placer.decision.advice import LEAST_GAIN, Advice, advise
from placer.decision.asked import Asked, asked, profile_named
from placer.decision.candidates import lacks, unusable
from placer.decision.changes import batch_size, with_batch
from placer.decision.comparison import Comparison, compare, without_maker
from placer.decision.convention import conventional, reachable
from placer.decision.decision import ABOUT_THE_SAME, SURE, Decision, break_even_steps, decide, probability_faster
from placer.decision.making import make_plan, plan_for
from placer.decision.objective import MANY, OBJECTIVES, TIME, Objective, Unit, objective_of
from placer.decision.occupied import with_occupied
from placer.decision.plan import Plan
from placer.decision.planning import decided, described
from placer.decision.present import present_profile, say_estimated
from placer.decision.real_times import with_race, with_seen
from placer.decision.request import Request, check
from placer.decision.residence import home
from placer.decision.threads import ThreadOption, best_count, running_with
from placer.decision.timed import TIE, counted_seconds, is_cpu
from placer.decision.totals import Total, total
from placer.decision.trade_offs import SAME, Point, pareto, trade

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
    "observed",
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
