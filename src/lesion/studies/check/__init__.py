"""`lesion check`: a few questions, unedited, with the prompts exactly as they are sent."""
