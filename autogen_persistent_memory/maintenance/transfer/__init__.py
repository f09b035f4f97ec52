"""Export a whole store to a file and import it again: `transfer` is the face, `export_format` the lines, `streams` the files."""
