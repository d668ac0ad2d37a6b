"""A logit lens as a study of lesion."""
