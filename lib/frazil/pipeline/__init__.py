"""What notebooks call: the lake of an environment, its tables, and the six steps that bring a batch into a table."""
