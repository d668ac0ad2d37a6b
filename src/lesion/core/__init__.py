"""What every study shares: study file, store, lock, cached answers, inference."""
