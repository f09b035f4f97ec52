"""What can still be read of a damaged database, recovered into a new store."""
