"""Parts and candidates -> Table -> Decision: what each device takes, which is the best, and how sure that is."""

from placer.decision import history, measured, ranks
from placer.decision.advice import Advice, advise, batch_size, with_batch
from placer.decision.apart import Apart, decide_apart, homes, worth_it
from placer.decision.candidates import (
    Candidate,
    Candidates,
    conventional,
    gather,
    unusable,
    without_maker,
)
from placer.decision.comparison import (
    PricedPart,
    Table,
    Traced,
    best_count,
    compare,
    only_placer_errors,
    price,
    told_left_out,
    total,
    trace_parts,
    traced_step,
    whole,
)
from placer.decision.current import current_profile, profile_named, warn_estimated
from placer.decision.decision import ABOUT_THE_SAME, SAME, Decision, Point, break_even_steps, decide, pareto, trade
from placer.decision.measured import running_with, time_steps, with_occupied, with_race, with_seen
from placer.decision.objective import (
    JOB,
    MANY,
    OBJECTIVES,
    TIE,
    TIME,
    Objective,
    check_priced,
    is_cpu,
    objective_of,
)
from placer.decision.obstacles import Obstacles

__all__ = [
    "ABOUT_THE_SAME", "Advice", "Apart", "Candidate", "Candidates", "Decision", "JOB", "MANY", "OBJECTIVES",
    "Objective", "Obstacles", "Point", "PricedPart", "SAME", "TIE", "TIME", "Table", "Traced", "advise",
    "batch_size", "best_count", "break_even_steps", "check_priced", "compare", "conventional", "current_profile",
    "decide", "decide_apart", "gather", "history", "homes", "is_cpu", "measured", "objective_of",
    "only_placer_errors", "pareto", "price", "profile_named", "ranks", "running_with", "time_steps",
    "told_left_out", "total", "trace_parts", "traced_step", "trade", "unusable", "warn_estimated", "whole",
    "with_batch", "with_occupied", "with_race", "with_seen", "without_maker", "worth_it",
]  # fmt: skip
