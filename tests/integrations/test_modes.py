"""Modes are switched as the library does it, without its walk through the modules."""

from __future__ import annotations

from torch import nn

from placer.integrations.modes import quick_switch


class Learner(nn.Module):
    """Its target never trains, as a reinforcement learner's."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.target = nn.Sequential(nn.Linear(2, 2), nn.Dropout()), nn.Dropout()
        self.set_training_mode(False)

    def set_training_mode(self, mode: bool) -> None:
        self.network.train(mode)


def test_the_flags_are_those_that_the_library_sets() -> None:
    learner, expected = Learner(), Learner()
    switch = quick_switch(learner, learner.set_training_mode)
    assert [part.training for part in learner.modules()] == [part.training for part in expected.modules()]
    for mode in (True, False, True):
        switch(mode)
        expected.set_training_mode(mode)
        assert [part.training for part in learner.modules()] == [part.training for part in expected.modules()]
        assert learner.network[1].training == mode
        assert learner.target.training
