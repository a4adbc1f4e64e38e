"""What is known of a machine: its profile, the JSON it is kept as, what comes with placer, and the catalogs."""

from placer.files import open_regular, read_regular, replace_file
from placer.profile.cores import THREAD_SECONDS, Cores
from placer.profile.cpus import (
    USUAL_KIND,
    CpuKind,
    CpuSheet,
    cpu_kinds,
    cpus,
    find_cpu,
    find_instance,
    kind_of,
    named_cores,
)
from placer.profile.gpus import PUBLISHED_MPS, DataSheet, catalog_name, find_gpu, gpus, knowledge, reported_gpu
from placer.profile.profile import (
    MUCH,
    OLDEST_SCHEMA,
    OTHERS,
    SAME_CLASS_WITHIN,
    SCHEMA,
    Device,
    FamilyFit,
    Profile,
    changed_fields,
    check_fresh,
    default_threads,
    dissimilarity,
    memory_of,
    on_cores,
    stale_fields,
    uncalibrated,
)
from placer.profile.schema import decode, encode
from placer.profile.store import (
    SUFFIXES,
    check_name,
    check_source,
    check_target,
    data_home,
    default_path,
    imported,
    load,
    load_cached,
    locate,
    named_path,
    profiles_folder,
    save,
    shipped,
    shipped_folder,
    working_file,
)

__all__ = [
    "Cores", "CpuKind", "CpuSheet", "DataSheet", "Device", "FamilyFit", "MUCH", "OLDEST_SCHEMA", "OTHERS",
    "PUBLISHED_MPS", "Profile", "SAME_CLASS_WITHIN", "SCHEMA", "SUFFIXES", "THREAD_SECONDS", "USUAL_KIND",
    "catalog_name", "changed_fields", "check_fresh", "check_name", "check_source", "check_target", "cpu_kinds", "cpus",
    "data_home", "decode", "default_path", "default_threads", "dissimilarity", "encode", "find_cpu", "find_gpu",
    "find_instance", "gpus", "imported", "kind_of", "knowledge", "load", "load_cached", "locate", "memory_of",
    "named_cores", "named_path", "on_cores", "open_regular", "profiles_folder", "read_regular", "replace_file",
    "reported_gpu", "save", "shipped", "shipped_folder", "stale_fields", "uncalibrated", "working_file",
]  # fmt: skip
