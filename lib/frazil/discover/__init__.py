"""What helps to begin: what a source and its files show, before there is a spec."""
