"""What each context of a sentence is worth, worked out beforehand: what a scorer learns from."""
