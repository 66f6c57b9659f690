"""What DMS's bytes mean: pure functions from files' bytes and messages to typed changes, in Arrow. No Spark, no I/O, no clock."""
