"""aiter's hipb_*: solutions of the vendor's library by index."""

from .. import operations
from .._arrays import read
from ..contexts import current
from ._words import of_result_type, refuse, type_word

_libraries = {"hip": "hipblaslt", "cuda": "cublaslt", "cpu": "onednn"}


def hipb_create_extension():
    """Nothing: libraries are opened when they are needed."""


def hipb_destroy_extension():
    """Nothing, likewise."""


def hipb_mm(mat1, mat2, solution_index, bias=None, out_dtype=None, scaleA=None, scaleB=None, scaleOut=None, bpreshuffle=None,
            use_gelu=None):
    """mat1 [M, K] · mat2 [K, N] (+ bias [N]) by one solution: on AMD's GPUs hipBLASLt's of this index, on NVIDIA's the proposal of
    this place of cuBLASLt, on a CPU of oneDNN. -1: the library's own choice. Verified in its first run. mat2 is the transpose of a
    weight [N, K], as AITER passes it."""
    refuse("scaleOut", scaleOut)
    refuse("bpreshuffle", bpreshuffle, (None, False))
    refuse("use_gelu", use_gelu, (None, False))
    first = read("mat1", mat1)
    library = _libraries[current(first.device).device()["backend"]]
    result = type_word(out_dtype) or first.type
    kernel = library if solution_index < 0 else f"{library}:{solution_index}"
    return operations.linear(mat1, mat2.T, of_result_type(bias, result, mat1), x_scale=scaleA, w_scale=scaleB, kernel=kernel,
                             out_dtype=None if result == first.type else result)
