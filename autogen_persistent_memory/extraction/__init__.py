"""Messages in, memories out: by rules for English, or by a language model.

Others import `extractor`, `model_extraction` and `background_extraction`. It knows no agent and no team.
"""
