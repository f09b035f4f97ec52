"""How large the parts of a memory may be. Checked wherever something comes in; what an older version stored stays readable.

One record must never cost a namespace the others: a list of 5,462 tags is more than Chroma can write with one SQL statement,
and stops it from taking in anything that comes after it.
"""

MAX_CONTENT = 1 << 20
"""Characters of a memory. A captured message may be longer: it is kept whole, and found by this much of its beginning."""
MAX_TAGS = 64
MAX_TAG = 256
MAX_KEY = 512
"""Characters of a key, of a memory or of a value."""
MAX_KIND = 128
MAX_SOURCE = 512
MAX_NAME = 512
"""Characters of a namespace, and of a session."""
MAX_METADATA = 100_000
"""Characters of a record's metadata, as JSON."""
MAX_VALUE = 1 << 25
"""Characters of a value, as JSON: never more than fits into a line of an export."""
MAX_DEPTH = 64
"""How deep metadata, values and JSON content may be nested."""
MAX_LINE_BYTES = 1 << 27
"""What an import reads of one line, so that a file without line ends does not fill the RAM."""
