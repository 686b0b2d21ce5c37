"""Random references and noisy copies of them, for the tests of scores and of their significance."""

from __future__ import annotations

import random


def random_corpus(size: int, noise: float, seed: int = 1) -> tuple[list[str], list[str]]:
    """References of 3 to 20 words and copies of them in which each word is wrong with probability `noise`."""
    rng = random.Random(seed)
    words = [f"w{number}" for number in range(50)] + ["it's", "3.5%", "(so)", "well-known"]
    references = [" ".join(rng.choices(words, k=rng.randint(3, 20))) + "." for _ in range(size)]
    hypotheses = [
        " ".join(rng.choice(words) if rng.random() < noise else word for word in line.split()) for line in references
    ]
    return hypotheses, references
