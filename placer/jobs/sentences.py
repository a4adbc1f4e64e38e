"""Sentences about steps, said of jobs."""

from __future__ import annotations

import re
from dataclasses import replace

from placer.decision import Decision


def of_a_job(decision: Decision) -> Decision:
    """A decision about steps whose steps are whole jobs."""
    said = re.sub(r"\ba step\b", "the job", decision.reason)
    return replace(decision, reason=re.sub(r"\bstep(s?)\b", r"repeat\1", said))
