"""Plans made, and errors of any kind as one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from placer import tracing
from placer.decision.measured import plan_for
from placer.decision.plan import make_plan
from placer.decision.request import Request, check
from placer.errors import PlacerError, TraceError
from placer.profile import Profile
from placer.workload import make_workload


@pytest.fixture
def request_of(calibrated: Profile) -> Callable[..., Request]:
    def made(model: nn.Module, measure: str = "never") -> Request:
        return check(make_workload(model, (4, 8)), ("cpu",), "keep", measure, None)

    return made


def test_a_plan_for_a_request_is_that_of_its_workload(request_of: Callable[..., Request]) -> None:
    model = nn.Linear(8, 2)
    plan = plan_for(request_of(model))
    made = make_plan(make_workload(model, (4, 8)), request_of(model).comparison())
    assert made.predictions["cpu"].step_seconds == plan.predictions["cpu"].step_seconds


def test_what_is_measured_is_measured_only_where_asked(request_of: Callable[..., Request]) -> None:
    assert not plan_for(request_of(nn.Linear(8, 2))).measured
    assert not plan_for(request_of(nn.Linear(8, 2), "always")).measured  # one device has nobody to race


def test_whatever_fails_is_one_kind_of_error(
    request_of: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(error: Exception) -> None:
        def trace(_: object) -> None:
            raise error

        monkeypatch.setattr(tracing, "trace", trace)

    failing(ZeroDivisionError("division by zero\nsomewhere"))
    with pytest.raises(PlacerError, match=r"^pricing failed with ZeroDivisionError: division by zero$"):
        plan_for(request_of(nn.Linear(8, 2)))
    failing(TraceError("as it is"))
    with pytest.raises(TraceError, match=r"^as it is$"):
        plan_for(request_of(nn.Linear(8, 2)))
    failing(torch.OutOfMemoryError("no room"))
    with pytest.raises(PlacerError, match="OutOfMemoryError: no room"):
        plan_for(request_of(nn.Linear(8, 2)))
