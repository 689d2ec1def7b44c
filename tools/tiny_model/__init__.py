"""A very small model for trying the whole of Plumbline with a real engine and without a network.

It is trained on the demo problems so that its greedy answers are a mixture: right, wrong, broken,
cut off. What it scores says nothing about anything.

A tool and no service: it joins the runner's prompts with the demo's solutions, and no service may
import another. Torch, transformers and tokenizers come with the engine's environment, never with
our own, so they are imported where they are used.
"""
