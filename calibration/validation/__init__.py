"""Predicted beside measured, on the networks of the suite: how good predictions and decisions are.

``run`` is ``placer validate``: it measures a suite, or predicts the cells of an earlier run anew (``cells``,
``record``, ``held_out``), and prints a ``report`` of ``scores`` and of the ``reference`` systems. ``accounts``,
``jobs``, and the ``comparison`` of ``published_steps``, ``published_problems``, ``published_machines`` and
``compiled_speed_ups``, hold other things against what others or this machine measured.

Nothing is exported here: whoever only reads a record does not load the rest.
"""
