"""Jobs of several parts: each part is priced like a step, the job is decided on as a whole, and parts may run apart."""

from placer.jobs.answers import Plans, check_arguments, choose_job, explain_job
from placer.jobs.placement import JobPlacement
from placer.jobs.pricing import shared_models

__all__ = ["JobPlacement", "Plans", "check_arguments", "choose_job", "explain_job", "shared_models"]
