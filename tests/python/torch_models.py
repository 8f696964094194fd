"""A small model of Llama's kind, and what the tests of several machines share."""

import torch
from torch import nn
from torch.nn import functional


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class Layer(nn.Module):
    def __init__(self, hidden, heads, kv_heads, inner):
        super().__init__()
        self.head = hidden // heads
        self.norms = nn.ModuleList([Norm(hidden), Norm(hidden)])
        self.q, self.o = nn.Linear(hidden, hidden, bias=True), nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = (nn.Linear(hidden, kv_heads * self.head, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        rows = self.norms[0](x)
        q, k, v = (layer(rows).unflatten(-1, (-1, self.head)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        repeat = q.shape[1] // k.shape[1]
        k, v = (one.repeat_interleave(repeat, 1) for one in (k, v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
        x = x + self.o(attended.transpose(1, 2).flatten(2))
        rows = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(rows)) * self.up(rows))


class SmallLlama(nn.Module):
    def __init__(self, hidden=128, heads=4, kv_heads=2, inner=256, layers=2, words=320):
        super().__init__()
        self.embed = nn.Embedding(words, hidden)
        self.layers = nn.ModuleList([Layer(hidden, heads, kv_heads, inner) for _ in range(layers)])
        self.norm, self.head = Norm(hidden), nn.Linear(hidden, words, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class GatedMlp(nn.Module):
    """The feed-forward layer of Llama's kind, as transformers writes it."""

    def __init__(self, hidden=64, inner=96, act_fn=None):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, hidden, bias=False)
        self.act_fn = act_fn or nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class OtherMlp(GatedMlp):
    """One that must be left alone: `form` says what it does otherwise."""

    def __init__(self, form):
        super().__init__(act_fn=nn.GELU() if form == "gelu" else None)
        self.form = form

    def forward(self, x):
        gate, up = self.gate_proj(x), self.up_proj(x * 2 if self.form == "other input" else x)
        if self.form == "clamped":
            gate = gate.clamp(max=1)
        if self.form == "depends on data" and gate.abs().max() > 1000:
            return x
        hidden = self.act_fn(up) * gate if self.form == "swapped" else self.act_fn(gate) * up
        if self.form == "twice":
            return self.down_proj(hidden) + self.down_proj(hidden)
        return self.down_proj(hidden) + (x if self.form == "residual" else 0) if self.form in ("residual", "zero") else self.down_proj(hidden)


def close(test, found, expected, relative):
    """Within `relative` of the size of the expected values."""
    expected = expected.double()
    difference = (found.double() - expected).abs().max().item()
    test.assertLess(difference / max(expected.abs().max().item(), 1e-30), relative)


def random_fp8(shape, device="cpu"):
    return torch.randn(shape, device=device).clamp(-8, 8).to(torch.float8_e4m3fn)


class Fp8Linear(nn.Module):
    """A layer as quantized checkpoints have it: fp8 weight, with one scale, one a row, or one for each 128 x 128."""

    def __init__(self, weight, kind, bias=None):
        super().__init__()
        blocks = weight.float()
        n, k = weight.shape
        if kind == "blocks":
            tiles = functional.pad(blocks, (0, -k % 128, 0, -n % 128)).unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
            scale = tiles.abs().amax((1, 3)) / 448
            full = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:n, :k]
            self.register_buffer("weight_scale_inv", scale)
        else:
            scale = blocks.abs().amax(1) / 448 if kind == "rows" else blocks.abs().amax() / 448
            full = scale[:, None] if kind == "rows" else scale
            self.register_buffer("weight_scale", scale[:, None] if kind == "rows" else scale)
        self.register_buffer("weight", (blocks / full).to(torch.float8_e4m3fn))
        self.register_buffer("exact", self.weight.float() * full)
        self.register_buffer("bias", bias)

    def forward(self, x):
        return functional.linear(x, self.exact.to(x.dtype), self.bias)
