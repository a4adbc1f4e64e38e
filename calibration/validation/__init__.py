"""Predicted beside measured, on real networks: how good predictions and decisions are.

``run`` measures a suite, or predicts the ``cells`` of an earlier run (a ``record``) anew; ``report`` prints what
``compare`` and ``decisions`` make of it. A checkout holds other things against what others measured, too
(``placer.calibration.lab``).

Nothing is exported here: whoever only reads a record does not load the rest.
"""
