"""Predicted beside measured, on the networks of the suite: how good predictions and decisions are.

The modules, from the top down:

- ``command`` is ``placer validate``; ``run`` measures a suite, or predicts the cells of an earlier run anew;
- ``report`` says in tables (``table``, ``reference_rows``) what the scores are: of predictions (``scoring``) and of
  decisions (``decision_scoring``);
- ``what_if_rows`` holds the reference systems on GPUs that are not here against their accounts, ``accounts`` all
  accounts, ``published_steps`` and ``compiled_speed_ups`` what others measured, ``jobs`` whole jobs that run here;
- ``held_out`` draws networks that no fit ever saw;
- ``cells`` predicts and measures one network, ``record`` keeps its cells on disk.

Nothing is exported here: whoever only reads a record does not load the rest.
"""
