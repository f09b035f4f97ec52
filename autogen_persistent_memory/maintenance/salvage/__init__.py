"""Recover a store with a damaged database: `recovery` is the face, `salvage` reads rows, `damaged_sqlite` reads pages."""
