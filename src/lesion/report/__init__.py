"""Tables, pictures, and one self-contained page to share."""
