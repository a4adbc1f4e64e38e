"""Predicted beside measured, on the networks of the suite: how good predictions and decisions are.

The modules, from the top down:

- ``command`` is ``placer validate``; ``run`` measures a suite, ``replaying`` predicts the cells of an earlier run anew;
- ``report`` says in tables (``table``, ``reference_rows``) what the scores are: of predictions (``scoring``,
  ``grouping``) and of decisions (``decision_scoring``);
- ``what_if_rows`` holds the reference systems on GPUs that are not here against their accounts, ``accounts`` all
  accounts, ``published_steps`` and ``compiled_speed_ups`` what others measured, ``jobs`` whole jobs that run here;
- ``held_out`` draws networks that no fit ever saw;
- ``predictions`` and ``measurements`` fill the ``cells`` of one network, ``isolated`` measures a baseline;
- ``record`` keeps cells on disk, and reads what it kept with ``json_fields``.

Nothing is exported here: whoever only reads a record does not load the rest.
"""
