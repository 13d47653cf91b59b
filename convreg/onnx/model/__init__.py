"""Models from untrusted sources: read from files, bounded, and checked."""
