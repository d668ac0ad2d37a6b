"""Direct effect, total effect, logit lens and block influence of every block."""
