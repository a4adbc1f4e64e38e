"""Question -> Table -> Decision: what each device takes, which is the best, and how sure that is."""

from placer.decision import history, ranks, recorded
from placer.decision.advice import LARGER, Advice, advise, with_batch
from placer.decision.candidates import (
    Candidate,
    Candidates,
    conventional,
    gather,
    unusable,
    without_maker,
)
from placer.decision.current import Source, current_profile, profile_named, warn_estimated
from placer.decision.decision import (
    ABOUT_THE_SAME,
    SAME,
    TIE,
    Decision,
    break_even_steps,
    decide,
    pareto,
    trade,
    unpredicted,
)
from placer.decision.measured import running_with, time_steps
from placer.decision.objective import (
    JOB,
    MANY,
    OBJECTIVES,
    TIME,
    Objective,
    check_priced,
    is_cpu,
    objective_of,
)
from placer.decision.obstacles import Obstacles
from placer.decision.pipeline import Question, answer, ask, best_count, only_placer_errors, sources
from placer.decision.recorded import StepTime
from placer.decision.steps import StepIdentity, Traced, batch_size, common_size, trace_parts, traced_step
from placer.decision.table import PricedPart, RealSteps, Table, total

__all__ = [
    "ABOUT_THE_SAME", "Advice", "advise", "answer", "ask", "batch_size", "best_count", "break_even_steps", "Candidate",
    "Candidates", "check_priced", "common_size", "conventional", "current_profile", "decide", "Decision", "gather",
    "history", "is_cpu", "JOB", "LARGER", "MANY", "Objective", "objective_of", "OBJECTIVES", "Obstacles",
    "only_placer_errors", "pareto", "PricedPart", "profile_named", "Question", "ranks", "RealSteps",
    "recorded", "running_with", "SAME", "Source", "sources", "StepIdentity", "StepTime", "Table", "TIE", "TIME",
    "time_steps", "total", "trace_parts", "Traced", "traced_step", "trade", "unpredicted", "unusable",
    "warn_estimated", "with_batch", "without_maker",
]  # fmt: skip
