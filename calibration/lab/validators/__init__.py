"""Predictions beside what others or this machine measured: the questions of ``placer validate`` in a checkout.

``suites`` and ``reference`` are about networks, ``accounts`` and ``jobs`` about whole programs, ``published`` and
``machines`` about rows that others published. ``ops`` and ``host_costs`` are commands of their own, for whoever prices
ops and hosts, and so is ``scripts``, which judges ``placer run``. They share ``rows``.
"""
