"""What DMS writes: where it lies, in which order it counts, and what of it is pending."""
