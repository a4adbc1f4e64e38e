"""Dropout, and everything else that draws random numbers."""

from __future__ import annotations

from placer.pricing.families.elementwise import FLAGS, SIZES, read
from placer.pricing.families.family import Family, aten

FAMILY = Family(
    name="random",
    ops=aten(
        "bernoulli bernoulli_ normal normal_ uniform uniform_ rand randn rand_like randn_like native_dropout "
        "native_dropout_backward dropout dropout_backward randint randint_like randperm multinomial exponential_ "
        "random_"
    ),
    sizes=SIZES,
    flags=FLAGS,
    read=read,
)
