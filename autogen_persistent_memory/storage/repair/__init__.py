"""Damage to an embedded store: found when it is opened, and repaired from the documents."""
