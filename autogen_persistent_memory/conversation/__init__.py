"""AutoGen in and out: what agents say is captured, what they need to know is shown to them, and saved teams continue.

Others import `turn`, `block`, `recorder`, `delivery`, `session_recap`, `team_resume`, `traces`, and from `autogen_messages` the
transcripts and the answers of tools. What we touch of AutoGen beyond its documented API is in `autogen_compat` alone. Nothing
here may know the public memory classes, the command line or how a store keeps its rows.
"""
