"""Predictions -> Decision: which device, how sure, with how many threads, and what was decided before."""

from placer.decision import history, observed, ranks
from placer.decision.advice import Advice, advise
from placer.decision.candidates import unusable
from placer.decision.changes import batch_size, with_batch
from placer.decision.comparison import Comparison, compare
from placer.decision.convention import conventional, reachable
from placer.decision.decision import ABOUT_THE_SAME, SURE, Decision, break_even_steps, decide
from placer.decision.occupied import with_occupied
from placer.decision.plan import Plan
from placer.decision.plan_cache import plans
from placer.decision.planning import decided
from placer.decision.present import present_profile, say_estimated
from placer.decision.race import same_randomness
from placer.decision.real_times import with_race, with_seen
from placer.decision.request import Request, answered_before, check, look_up, remember, understood, words
from placer.decision.residence import home
from placer.decision.threads import ThreadOption, best_count, running_with
from placer.decision.timed import TIE, is_cpu
from placer.decision.totals import Total, total

__all__ = [
    "ABOUT_THE_SAME",
    "Advice",
    "Comparison",
    "Decision",
    "Plan",
    "Request",
    "SURE",
    "TIE",
    "ThreadOption",
    "Total",
    "advise",
    "answered_before",
    "batch_size",
    "best_count",
    "break_even_steps",
    "check",
    "compare",
    "conventional",
    "decide",
    "decided",
    "history",
    "home",
    "is_cpu",
    "look_up",
    "observed",
    "plans",
    "present_profile",
    "ranks",
    "reachable",
    "remember",
    "running_with",
    "same_randomness",
    "say_estimated",
    "understood",
    "total",
    "unusable",
    "with_batch",
    "with_occupied",
    "with_race",
    "with_seen",
    "words",
]
