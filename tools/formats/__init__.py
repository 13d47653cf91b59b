"""Models in the formats of other frameworks: readers, writers, and what they share."""
