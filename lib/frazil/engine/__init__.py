"""How a batch runs: the functions of `core` in the driver for a small one, in Spark's tasks for a large one."""
