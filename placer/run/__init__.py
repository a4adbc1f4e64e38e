"""``placer run`` and ``%load_ext placer``: watch models that know nothing of placer, and say what they cost where.

Nothing here imports torch before the script does: it may set what torch reads while it is loaded.
"""

from placer.run.magic import load_magic, unload_magic
from placer.run.options import ReportOptions
from placer.run.script import prepare
from placer.run.session import Session

__all__ = ["ReportOptions", "Session", "load_magic", "prepare", "unload_magic"]
