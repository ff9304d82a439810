"""Published experiments, one file each: question, settings, published figures, and how to run a seed."""
