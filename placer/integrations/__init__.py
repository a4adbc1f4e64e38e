"""placer inside other frameworks, one module per framework; each imports its framework when it is used, not before.

Their ``..._args`` give all options of a framework's own constructor back, with the device among them. ``choose`` takes
the framework's own objects and returns a ``Placement``. Neither moves anything where the framework moves, and a device
that the caller has chosen stays.
"""
