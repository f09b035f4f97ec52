"""AutoGen in and out: what is heard, what a turn is shown, and where a team continues.

Others import `turn`, `recorder`, `session_recap`, `team_resume` and `tool_notes`. Everything private of AutoGen that the package
touches is in here.
"""
