"""Raw tensors in, raw tensors out: the compiled inner loops, with no policy of their own."""
