"""Data that every other folder uses: records, policy, component configs, errors, limits.

Others import any module of it. It knows no other folder, no AutoGen type but `ComponentModel`, and no Chroma.
"""
