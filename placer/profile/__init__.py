"""What is known of a machine: its profile, the JSON it is kept as, what comes with placer, and the catalog of GPUs."""

from placer.profile import json_values
from placer.profile.data_sheet import DataSheet
from placer.profile.files import data_home, replace_file
from placer.profile.freshness import (
    changed_fields,
    check_fresh,
    default_threads,
    describe,
    memory_of,
    notes,
    stale_fields,
)
from placer.profile.gpus import find_gpu, gpus, knowledge
from placer.profile.likeness import SAME_CLASS_WITHIN, dissimilarity
from placer.profile.profile import OLDEST_SCHEMA, SCHEMA, DeviceFit, FamilyFit, Profile, Sample
from placer.profile.store import (
    check_source,
    default_path,
    imported,
    load,
    load_cached,
    locate,
    named_path,
    profiles_folder,
    save,
    shipped,
    shipped_facts,
    shipped_folder,
)

__all__ = [
    "OLDEST_SCHEMA",
    "SAME_CLASS_WITHIN",
    "SCHEMA",
    "DataSheet",
    "DeviceFit",
    "FamilyFit",
    "Profile",
    "Sample",
    "changed_fields",
    "check_fresh",
    "check_source",
    "data_home",
    "default_path",
    "default_threads",
    "describe",
    "dissimilarity",
    "find_gpu",
    "gpus",
    "imported",
    "json_values",
    "knowledge",
    "load",
    "load_cached",
    "locate",
    "memory_of",
    "named_path",
    "notes",
    "profiles_folder",
    "replace_file",
    "save",
    "shipped",
    "shipped_facts",
    "shipped_folder",
    "stale_fields",
]
