"""dynctx: document translation that chooses, for each sentence, the earlier sentences it needs."""

__version__ = "0.1.0"
