"""Predictions -> Decision: which device, how sure, with how many threads, and what was decided before."""

from placer.decision import history, observed, ranks
from placer.decision.advice import Advice, advise
from placer.decision.candidates import unusable
from placer.decision.changes import batch_size, with_batch
from placer.decision.comparison import Comparison, compare
from placer.decision.convention import conventional, reachable
from placer.decision.decision import Decision, break_even_steps, decide
from placer.decision.occupied import with_occupied
from placer.decision.plan import Plan
from placer.decision.plan_cache import plans
from placer.decision.planning import decided
from placer.decision.race import same_randomness
from placer.decision.real_times import with_race, with_seen
from placer.decision.request import Request, answered_before, check, look_up, remember, understood, words
from placer.decision.residence import home
from placer.decision.threads import ThreadOption, best_count, running_with

__all__ = [
    "Advice",
    "Comparison",
    "Decision",
    "Plan",
    "Request",
    "ThreadOption",
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
    "look_up",
    "observed",
    "plans",
    "ranks",
    "reachable",
    "remember",
    "running_with",
    "same_randomness",
    "understood",
    "unusable",
    "with_batch",
    "with_occupied",
    "with_race",
    "with_seen",
    "words",
]
