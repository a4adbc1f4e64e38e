"""How calibration measures on one device: steps and the ops in them, under a watchdog and a journal.

The modules, from the top down:

- ``bench`` measures one probe, and survives those that fail; ``journal`` keeps what was seen;
- ``in_place`` times a step and its ops by the event recorder (``recording``, ``events``), or by waiting, for devices
  whose kernels no recorder sees; ``step_timing`` makes an observation of that;
- ``step`` runs real steps, several in turns; ``timing`` times single functions, of which ``rates`` makes a data sheet;
- ``faults`` ends what hangs and tells a device that no longer works.

Nothing is exported here.
"""
