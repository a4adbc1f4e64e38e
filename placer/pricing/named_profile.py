"""What a reader may name as a machine: a profile by its path or name, or a GPU of the catalog."""

from __future__ import annotations

import os
from collections.abc import Callable

from placer.errors import ProfileMissing, UnknownGPU
from placer.profile import Profile, load, load_cached


def named_profile(
    source: Profile | str | os.PathLike[str] | None, cpu: Callable[[], Profile | None], *, samples: bool = False
) -> Profile:
    """A profile by its path or name; else of the GPU that the catalog finds by that name (see ``gpu_profile``).

    ``cpu`` gives the profile of the GPU's host. ``samples`` keeps those of a file. Raises ProfileError; UnknownGPU
    lists the closest names where neither is found.
    """
    try:
        return load(source) if samples and not isinstance(source, Profile) else load_cached(source)
    except (ProfileMissing, ValueError) as missing:  # a GPU's name need not be one that a profile could have
        if not isinstance(source, str) or source.endswith(".json"):
            raise
        # On use: most sources are profiles.
        from placer.pricing.gpu.catalog_profile import gpu_profile

        try:
            return gpu_profile(source, cpu())
        except UnknownGPU as unknown:
            if os.sep in source:
                raise missing from None
            what = str(missing) if isinstance(missing, ProfileMissing) else (
                f"no profile is called {source!r}; list them with: placer profile list"
            )
            raise UnknownGPU(f"{what}; {unknown}") from None
