"""The sentence model and its parts written out from the weights alone, one sentence at a time: no mask, no batch.

Tests of the document-level models build their own equations on it and compare.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dynctx.layers import sinusoids
from dynctx.subwords import BOS, EOS, SPECIAL


class Plain:
    def __init__(self, model: nn.Module, heads: int, layers: int, norm: str) -> None:
        self.weights = {n: p.detach() for n, p in model.named_parameters(remove_duplicate=False)}
        self.heads, self.layers, self.pre = heads, layers, norm == "pre"

    def linear(self, name: str, x: Tensor) -> Tensor:
        out = x @ self.weights[f"{name}.weight"].T
        return out + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else out

    def norm(self, name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def mix(self, query: Tensor, key: Tensor, value: Tensor, causal: bool = False) -> Tensor:
        """Softmax attention with all heads side by side. [Q, d], [K, d], [K, d] -> [Q, d]"""
        heads = []
        for q, k, v in zip(*(part.chunk(self.heads, -1) for part in (query, key, value))):
            scores = q @ k.T / q.shape[-1] ** 0.5
            if causal:
                scores = scores + torch.full_like(scores, -torch.inf).triu(1)
            heads.append(scores.softmax(-1) @ v)
        return torch.cat(heads, -1)

    def self_attention(self, name: str, x: Tensor, causal: bool = False) -> Tensor:
        query, key, value = self.linear(f"{name}.query_key_value", x).chunk(3, -1)
        return self.linear(f"{name}.output", self.mix(query, key, value, causal))

    def cross_attention(self, name: str, x: Tensor, other: Tensor) -> Tensor:
        query, (key, value) = self.linear(f"{name}.query", x), self.linear(f"{name}.key_value", other).chunk(2, -1)
        return self.linear(f"{name}.output", self.mix(query, key, value))

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        return self.linear(f"{name}.outer", self.linear(f"{name}.inner", x).relu())

    def add(self, name: str, x: Tensor, sublayer: object, pre: bool | None = None) -> Tensor:
        """A residual step around a function of the (perhaps normed) input."""
        assert callable(sublayer)
        if self.pre if pre is None else pre:
            return x + sublayer(self.norm(f"{name}.norm", x))
        return self.norm(f"{name}.norm", x + sublayer(x))

    def embed(self, side: str, ids: list[int]) -> Tensor:
        weight = self.weights[f"{side}_embedding.weight"]
        return weight[ids] * weight.shape[1] ** 0.5 + sinusoids(len(ids), weight.shape[1]).double()

    def encode(self, ids: list[int]) -> Tensor:
        """[S, d] encoder states of a sentence that ends in EOS."""
        x = self.embed("source", ids)
        for n in range(self.layers):
            name = f"encoder.{n}"
            x = self.add(
                f"{name}.self_residual", x, lambda y, name=name: self.self_attention(f"{name}.self_attention", y)
            )
            x = self.add(
                f"{name}.feed_forward_residual", x, lambda y, name=name: self.feed_forward(f"{name}.feed_forward", y)
            )
        return self.norm("encoder_norm", x) if self.pre else x

    def decode(self, memory: Tensor, prefix: list[int]) -> Tensor:
        """[T, d] decoder states behind each token of the prefix, which begins with BOS."""
        x = self.embed("target", prefix)
        for n in range(self.layers):
            name = f"decoder.{n}"
            x = self.add(
                f"{name}.self_residual", x, lambda y, name=name: self.self_attention(f"{name}.self_attention", y, True)
            )
            x = self.add(
                f"{name}.memory_residual",
                x,
                lambda y, name=name: self.cross_attention(f"{name}.memory_attention", y, memory),
            )
            x = self.add(
                f"{name}.feed_forward_residual", x, lambda y, name=name: self.feed_forward(f"{name}.feed_forward", y)
            )
        return self.norm("decoder_norm", x) if self.pre else x


def greedy(plain: Plain, ids: list[int], limit: int) -> list[int]:
    """What CADec's sentence model makes of a source, with EOS, taking the likeliest word each time."""
    states, said = plain.encode(ids), [BOS]
    while said[-1] != EOS:
        scores = plain.linear("base_output", plain.decode(states, said)[-1])
        scores[[symbol for symbol in range(len(SPECIAL)) if symbol != EOS]] = -torch.inf
        said.append(int(scores.argmax()) if len(said) <= limit else EOS)
    return said[1:]
