"""How calibration measures on one device: steps and the ops in them, under a speed probe, a watchdog and a journal.

The modules, from the top down:

- ``bench`` measures one probe, ``attempts`` survives those that fail, ``journal`` keeps what was seen;
- ``observe`` turns a timed step into an ``observation``;
- ``in_place`` times a step and its ops by the event recorder (``recording``, ``events``, ``matching``, ``stopwatch``,
  ``recording_cost``); ``device_timing`` does it by waiting, for devices whose kernels no recorder sees;
- ``interleaved`` times whole steps of several workloads in turns; ``timing`` times single functions;
- ``rates`` measures what a data sheet says;
- ``kernel_recorder`` finds out whether the event recorder sees an accelerator's kernels, and what it adds to a launch;
- ``speed_probe``, ``interference`` and ``clocks`` notice that the machine was disturbed, ``watchdog`` ends what hangs,
  ``health`` tells a device that no longer works.

Nothing is exported here: whoever only takes a reading of the speed probe does not load the rest.
"""
