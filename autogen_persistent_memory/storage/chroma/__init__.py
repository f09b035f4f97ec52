"""The store protocol over Chroma: clients, collections, rows, and migrations of what earlier versions stored."""
