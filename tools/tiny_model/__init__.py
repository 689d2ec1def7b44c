"""Very small Qwen2 model for end-to-end tests with a real engine and without a network.

It is trained on the demo problems so that its greedy answers are a mixture: correct, wrong, broken,
truncated. Its scores have no meaning.

Torch, transformers and tokenizers are installed only in the engine's environment, not in
Plumbline's, so functions import them.
"""
