"""Models trained from scratch, or compiled, to test the methods on: registered with lesion as another package would."""
