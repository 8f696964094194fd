"""capture(): which matrix products a workload runs, as shape lists that `gemmtune tune -i` takes."""

import csv
import os
import threading

import torch
from torch.overrides import TorchFunctionMode

from ._operators import type_of

_columns = {
    "a16w16": ("M", "N", "K", "bias", "dtype", "outdtype", "scaleAB", "bpreshuffle", "calls"),
    "a8w8": ("M", "N", "K", "q_dtype_w", "calls"),
    "a8w8_bpreshuffle": ("M", "N", "K", "q_dtype_w", "calls"),
    "a8w8_blockscale": ("M", "N", "K", "calls"),
    "a8w8_blockscale_bpreshuffle": ("M", "N", "K", "calls"),
    "a4w4_blockscale": ("M", "N", "K", "calls"),
    "a16w4": ("M", "N", "K", "bias", "q_dtype_a", "outdtype", "bpreshuffle", "calls"),
    "a8w4": ("M", "N", "K", "bias", "q_dtype_a", "outdtype", "bpreshuffle", "calls"),
    "a16w4_nvfp4": ("M", "N", "K", "bias", "q_dtype_a", "outdtype", "bpreshuffle", "calls"),
    "a8w4_nvfp4": ("M", "N", "K", "bias", "q_dtype_a", "outdtype", "bpreshuffle", "calls"),
    "a4w4_nvfp4": ("M", "N", "K", "bias", "q_dtype_a", "outdtype", "bpreshuffle", "calls"),
    "a16w4_int4": ("M", "N", "K", "bias", "q_dtype_a", "outdtype", "bpreshuffle", "group", "zero_points", "calls"),
    "a8w4_int4": ("M", "N", "K", "bias", "q_dtype_a", "outdtype", "bpreshuffle", "group", "zero_points", "calls"),
    "batched_bf16": ("B", "M", "N", "K", "calls"),
    "batched_a8w8": ("B", "M", "N", "K", "calls"),
    "fused_moe": ("token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_a", "q_dtype_w", "q_type",
                  "use_g1u1", "doweight_stage1", "group", "zero_points", "calls"),
}
# AITER's words, in the order of include/gemmtune/enumerations.h.
_activations = ("No", "Silu", "Gelu", "Swiglu", "Situv2")
_quant_types = ("No", "per_Tensor", "per_Token", "per_1x32", "per_1x128", "per_128x128", "per_1x16", "per_group")


_int4 = tuple(dtype for dtype in (getattr(torch, "int4", None),) if dtype)
_fp4 = tuple(dtype for dtype in (torch.uint8, getattr(torch, "float4_e2m1fn_x2", None)) if dtype)


def _is_float(x):
    return x.dtype in (torch.bfloat16, torch.float16, torch.float32)


def _stored(x):
    """AITER's word for the type of an operand; bytes hold MXFP4."""
    return "torch.float4_e2m1fn_x2" if x.dtype in _fp4 else x.dtype


def _rows(x):
    return x.numel() // x.shape[-1] if x.shape[-1] else 0


class capture(TorchFunctionMode):
    """with gemmtune.torch.capture("shapes.csv"): model(...)

    Records the sizes of every linear layer, patched or not, of torch._scaled_mm and of torch.ops.gemmtune.*, with how often
    each ran. The sizes of a16w16 go into `path`, those of another operation into path with .OPERATION before its ending; an
    existing file is replaced. packed=True asks for packed weights (on a CPU they are faster). Record the model itself, not
    one that torch.compile made: a compiled call runs no Python. `shapes`: what was recorded, by operation."""

    def __init__(self, path=None, packed=False):
        super().__init__()
        self.path, self.packed = path, packed
        self.shapes = {}
        self._lock = threading.Lock()
        self._inside = threading.local()

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if not getattr(self._inside, "call", False):
            self._inside.call = True
            try:
                self._see(function, arguments, options)
            finally:
                self._inside.call = False
        return function(*arguments, **options)

    def _see(self, function, arguments, options):
        if function is torch.nn.functional.linear or function is torch._C._nn.linear:
            self._linear(*arguments, **options)
        elif function is torch._scaled_mm:
            self._scaled_mm(*arguments, **options)
        else:
            name = getattr(function, "_qualified_op_name", None) or getattr(function, "_name", "")
            if isinstance(name, str) and name.startswith("gemmtune::"):
                self._operator(name.split("::")[1].split(".")[0].removesuffix("_out"), *arguments, **options)

    def _add(self, operation, **row):
        key = tuple(row.items())
        with self._lock:
            known = self.shapes.setdefault(operation, {})
            known[key] = known.get(key, 0) + 1

    def _a16w16(self, m, n, k, bias, x, out_dtype, scaled, packed):
        self._add("a16w16", M=m, N=n, K=k, bias=bias, dtype=type_of(x), outdtype=_word(out_dtype), scaleAB=scaled,
                  bpreshuffle=packed)

    def _linear(self, x, weight, bias=None):
        if _is_float(x) and weight.dtype is x.dtype and _rows(x):
            self._a16w16(_rows(x), weight.shape[0], weight.shape[1], bias is not None, x, x.dtype, False, self.packed)

    def _scaled_mm(self, x, w, scale_a=None, scale_b=None, bias=None, scale_result=None, out_dtype=None, **rest):
        if scale_a is None or scale_b is None or x.dtype is not torch.float8_e4m3fn or not len(x):
            return
        (m, k), n = x.shape, w.shape[1]
        if scale_a.numel() == 1 and scale_b.numel() == 1:
            self._a16w16(m, n, k, bias is not None, x, out_dtype or torch.bfloat16, True, self.packed)
        elif scale_a.numel() in (1, m) and scale_b.numel() in (1, n):
            self._add("a8w8", M=m, N=n, K=k, q_dtype_w="fp8")

    def _fused_moe(self, x, w1, w2, topk_ids, topk_weights, x_scale=None, w1_scale=None, w2_scale=None, activation=1, quant_type=0,
                   gated=True, doweight_stage1=False, shared_experts=0, bias1=None, bias2=None, out_dtype=None, w1_global_scale=None,
                   w2_global_scale=None, w1_zero_points=None, w2_zero_points=None, out=None):
        elements = 2 if w1.dtype in _fp4 + _int4 else 1  # of w in a byte
        result = out.dtype if out is not None else out_dtype or (x.dtype if _is_float(x) else torch.bfloat16)
        weight, groups = _stored(w1), {}
        if _quant_types[quant_type] == "per_group":
            blocks = w1_scale.numel() // (w1.shape[0] * w1.shape[1])
            weight = "torch.int4"
            groups = {"group": w1.shape[2] * elements // blocks if blocks > 1 else "row", "zero_points": w1_zero_points is not None}
        self._add("fused_moe", token=x.shape[0], model_dim=w1.shape[2] * elements, inter_dim=w2.shape[2] * elements,
                  expert=w1.shape[0], topk=topk_ids.shape[1] + shared_experts,
                  act_type=f"ActivationType.{_activations[activation]}", dtype=result, q_dtype_a=_stored(x),
                  q_dtype_w=weight, q_type=f"QuantType.{_quant_types[quant_type]}", use_g1u1=int(gated),
                  doweight_stage1=int(doweight_stage1), **groups)

    def _operator(self, operation, x, w, *rest, out=None, n=0, layout=0, out_dtype=None, **options):
        if operation not in _columns and operation != "linear" or not _rows(x):
            return
        if operation == "fused_moe":
            self._fused_moe(x, w, *rest, out=out, **({"out_dtype": out_dtype} if out_dtype else {}), **options)
            return
        if operation.startswith("batched"):
            self._add(operation, B=x.shape[0], M=x.shape[1], N=w.shape[1], K=x.shape[2])
            return
        # How many arguments with operands follow w.
        positions = {"linear": 3, "a8w8": 3, "a8w8_blockscale": 2, "a4w4_blockscale": 2, "a16w4": 2, "a8w4": 3, "a16w4_nvfp4": 3,
                     "a8w4_nvfp4": 4, "a4w4_nvfp4": 5, "a16w4_int4": 3, "a8w4_int4": 4}[operation]
        if len(rest) > positions:  # n, layout, out_dtype without names
            n, layout, out_dtype = (*rest[positions:], *(0, 0, None)[len(rest) - positions:])[:3]
        packed = bool(layout)
        columns = n if packed else w.shape[0]
        if operation == "linear":
            given = [*rest, *[None] * 3][:3]
            bias, scale = options.get("bias", given[0]), options.get("x_scale", given[1])
            y = out.dtype if out is not None else out_dtype or (x.dtype if scale is None else torch.bfloat16)
            self._a16w16(_rows(x), columns, x.shape[-1], bias is not None, x, y, scale is not None, packed or self.packed)
            return
        if "q_dtype_a" in _columns[operation]:
            bias = options.get("bias", rest[positions - 1] if len(rest) >= positions else None)
            y = out.dtype if out is not None else out_dtype or (x.dtype if operation.startswith("a16") else torch.bfloat16)
            halves = operation == "a4w4_nvfp4"
            k = x.shape[-1] * (2 if halves else 1)
            row = {}
            if "group" in _columns[operation]:
                scale, zero_points = (options.get(name, rest[at] if len(rest) > at else None)
                                      for name, at in (("w_scale", positions - 3), ("w_zero_points", positions - 2)))
                blocks = scale.shape[-1] if scale.dim() > 1 else 1
                row = {"group": k // blocks if blocks > 1 else "row", "zero_points": zero_points is not None}
            self._add(operation, M=_rows(x), N=columns, K=k, bias=bias is not None,
                      q_dtype_a="fp4x2" if halves else type_of(x), outdtype=str(y), bpreshuffle=packed or self.packed, **row)
            return
        k = x.shape[-1] * (2 if operation == "a4w4_blockscale" else 1)
        row = {"q_dtype_w": "int8" if x.dtype is torch.int8 else "fp8"} if operation == "a8w8" else {}
        packs = (packed or self.packed) and operation != "a4w4_blockscale"
        self._add(operation + ("_bpreshuffle" if packs else ""), M=_rows(x), N=columns, K=k, **row)

    def __exit__(self, *error):
        result = super().__exit__(*error)
        if self.path is not None and error[0] is None:
            self.write(self.path)
        return result

    def write(self, path):
        """Writes what was recorded; returns the files."""
        path = os.fspath(path)
        stem, ending = os.path.splitext(path)
        written = []
        for operation, rows in sorted(self.shapes.items()):
            file = path if operation == "a16w16" else f"{stem}.{operation}{ending}"
            with open(file + ".tmp", "w", newline="") as stream:
                # Those that no row has, as the groups of a mixture without int4 weights, are left out.
                columns = [column for column in _columns[operation] if column == "calls" or any(column in dict(row) for row in rows)]
                writer = csv.DictWriter(stream, columns, lineterminator="\n")
                writer.writeheader()
                for row, calls in rows.items():
                    writer.writerow({**dict(row), "calls": calls})
            os.replace(file + ".tmp", file)
            written.append(file)
        return written


def _word(dtype):
    return {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}[dtype]
