"""The papers, one file each: which edits to ask for and how to read the rows."""
