"""Who answers: items under edits become answers."""
