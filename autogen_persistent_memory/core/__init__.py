"""Data that every other folder uses: records, policy, component configs, errors, limits and token counts.

Others may import every module. This folder must never import another one, nor Chroma, nor any type of AutoGen but
`ComponentModel`.
"""
