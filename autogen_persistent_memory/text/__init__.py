"""Functions of a text alone: words, sentences, redaction, and embeddings.

Others may import every module. All but `embeddings` and `minilm` are pure functions. This folder must never know a store,
a namespace or a type of AutoGen.
"""
