"""Others' published measurements: read, cleaned, and turned into what is known of GPUs that nobody here owns."""
