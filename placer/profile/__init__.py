"""What is known of a machine: its profile, the JSON it is kept as, what comes with placer, and the catalog of GPUs."""

from placer.profile.gpus import DataSheet, find_gpu, gpus, knowledge, reported_gpu
from placer.profile.profile import (
    OLDEST_SCHEMA,
    SAME_CLASS_WITHIN,
    SCHEMA,
    Cores,
    DeviceFit,
    FamilyFit,
    Profile,
    Sample,
    changed_fields,
    check_fresh,
    default_threads,
    describe,
    dissimilarity,
    memory_of,
    notes,
    stale_fields,
)
from placer.profile.store import (
    check_source,
    data_home,
    default_path,
    imported,
    load,
    load_cached,
    locate,
    named_path,
    profiles_folder,
    replace_file,
    save,
    shipped,
    shipped_facts,
    shipped_folder,
)

__all__ = [
    "Cores", "DataSheet", "DeviceFit", "FamilyFit", "OLDEST_SCHEMA", "Profile", "SAME_CLASS_WITHIN", "SCHEMA", "Sample",
    "changed_fields", "check_fresh", "check_source", "data_home", "default_path", "default_threads", "describe",
    "dissimilarity", "find_gpu", "gpus", "imported", "knowledge", "load", "load_cached", "locate",
    "memory_of", "named_path", "notes", "profiles_folder", "replace_file", "reported_gpu", "save", "shipped",
    "shipped_facts", "shipped_folder", "stale_fields",
]  # fmt: skip
