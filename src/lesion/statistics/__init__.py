"""Statistics: pure functions on arrays, which know nothing of models or studies."""
