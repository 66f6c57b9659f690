"""The work of a batch, here or in tasks of Spark."""
