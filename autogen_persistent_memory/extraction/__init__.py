"""Messages in, memories out: by rules for English text, or by a language model.

Others import `extractor` (the protocol and the rules), `model_extraction` (a model), `background_extraction` (a model in the
background of a conversation), `model_clients`, `grounding`, and `english` (`extract_facts`, `person`). It knows the engine,
but no agent, no team and no AutoGen message.
"""
