"""The linear associative memory with noise: the smallest model in which truncating weights removes a wrong habit."""
