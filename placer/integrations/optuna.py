"""Optuna: a choice per trial, recorded in the trial.

>>> def objective(trial):
...     model = build(trial)
...     placement = choose(trial, model, (batch_size, 84))
"""

from __future__ import annotations

from typing import Any

import placer
from placer.placed import Placement


def choose(trial: Any, model: Any, batch: Any = None, **workload: Any) -> Placement:
    """``placer.choose`` for the model of one trial; what was chosen is kept in the trial's user attributes.

    ``placer_device``, ``placer_reason``, and where there is a prediction ``placer_confidence`` and
    ``placer_step_seconds``: columns of ``study.trials_dataframe()``.

    Raises ValueError, TypeError for a wrong argument.
    """
    placement = placer.choose(model, batch, **workload)
    trial.set_user_attr("placer_device", str(placement.device))
    trial.set_user_attr("placer_reason", placement.reason)
    predicted = placement.predictions.get(placement.device)
    if predicted is not None:
        trial.set_user_attr("placer_confidence", placement.confidence)
        trial.set_user_attr("placer_step_seconds", predicted.step_seconds)
    return placement
