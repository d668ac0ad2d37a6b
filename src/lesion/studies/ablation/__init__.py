"""Layer ablation: what each task loses when one place after another is switched off (Nepal et al. 2025)."""
