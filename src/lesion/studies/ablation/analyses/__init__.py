"""Analyses of a layer study, a file each: from its summary and answers to rows, claims and a part of the page."""
