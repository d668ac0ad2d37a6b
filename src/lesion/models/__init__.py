"""What lies on the table: a loaded model, its anatomy and its bundled specimens."""
