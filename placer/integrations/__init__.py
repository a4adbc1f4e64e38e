"""placer inside other frameworks, one module per framework; each imports its framework when it is used, not before.

Those of frameworks that train have ``choose``, which takes the framework's own objects and returns a ``Placement``
without moving anything: the framework moves. The other functions say the answer in the framework's words.
"""
