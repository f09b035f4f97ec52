"""What can be told from a text alone: words, sentences, secrets, and vectors.

Others import any module of it. Everything here but the embeddings is a pure function. It knows no store and no AutoGen type.
"""
