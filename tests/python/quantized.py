"""Quantized weights in float64, and small ones at random: for the tests of gemmtune.checkpoints."""

import torch

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def values(weight):
    """The weight that operands stand for, as docs/checkpoints.md defines them: float64 [N, K] or [E, N, K]."""
    nibbles = torch.stack((weight.w & 15, weight.w >> 4), -1).flatten(-2).long()
    if weight.operation.endswith("int4"):
        elements = ((nibbles ^ 8) - 8).double()
        scale = weight.w_scale.double()
    else:
        elements = E2M1[nibbles]
        scale = torch.exp2(weight.w_scale.double() - 127) if weight.w_scale.dtype == torch.uint8 else weight.w_scale.double()
    if weight.w_zero_points is not None:
        elements -= weight.w_zero_points.repeat_interleave(weight.group, -1)
    found = elements * scale.repeat_interleave(weight.group, -1)
    if weight.w_global_scale is not None:
        found *= weight.w_global_scale.double()
    if weight.k_order is not None:
        found[..., weight.k_order] = found.clone()
    return found


def words(nibbles, order=range(8)):
    """int32 [..., W] of nibbles [..., 8 W]: nibble i of a word is element order[i]. One shift at a time, as the writers of the formats do."""
    packed = torch.zeros(*nibbles.shape[:-1], nibbles.shape[-1] // 8, dtype=torch.int64)
    for bit, element in enumerate(order):
        packed |= nibbles[..., element::8].long() << 4 * bit
    return packed.to(torch.int32)  # two's complement: the upper bit is the sign


class Int4:
    """q of 0 to 15 [N, K], with zero points, scales and the group of each input. zeros: the range of zero points."""

    def __init__(self, n, k, group, zeros=(0, 15), dtype=torch.float16, order=None):
        self.group, size = group, k if group == -1 else group
        self.q = torch.randint(0, 16, (n, k))
        self.zeros = torch.randint(zeros[0], zeros[1] + 1, (n, k // size))
        self.scales = (torch.rand(n, k // size) + 0.01).to(dtype)
        self.g_idx = (torch.arange(k) // size if order is None else order // size).to(torch.int32)

    def values(self):
        of_inputs = self.g_idx.long()
        return (self.q - self.zeros[:, of_inputs]).double() * self.scales.double()[:, of_inputs]

    def awq(self):
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        return {"qweight": words(self.q.t(), order), "qzeros": words(self.zeros.t(), order), "scales": self.scales.t().contiguous()}

    def gptq(self, v2=False):
        return {"qweight": words(self.q).t().contiguous(), "qzeros": words(self.zeros.t() - (0 if v2 else 1)), "scales": self.scales.t().contiguous(),
                "g_idx": self.g_idx}

    def compressed(self):
        n, k = self.q.shape
        q, zeros = (torch.nn.functional.pad(matrix, (0, -matrix.shape[-1] % 8)) for matrix in (self.q, self.zeros.t()))
        return {"weight_packed": words(q), "weight_scale": self.scales, "weight_shape": torch.tensor([n, k]),
                "weight_zero_point": words(zeros).t().contiguous(), "weight_g_idx": self.g_idx}


def random_nvfp4(n, k):
    """Bytes and e4m3 scales: every code but the scales' NaN."""
    scales = torch.randint(0, 256, (n, k // 16), dtype=torch.uint8)
    scales[(scales & 127) == 127] = 1
    return torch.randint(0, 256, (n, k // 2), dtype=torch.uint8), scales.view(torch.float8_e4m3fn)
