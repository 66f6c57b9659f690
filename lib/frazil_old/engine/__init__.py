"""How a batch runs: the functions of `core` in the driver for a small batch, in Spark's tasks for a large one."""
