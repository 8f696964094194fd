"""Random calls of every operation, and random views of their operands, for the property tests: a call on views computes what
the same call on contiguous copies does, or is refused with a sentence.

Numbers are small integers and scales powers of two, so that no order of summation changes a result."""

import os

import numpy as np
from numpy.lib.stride_tricks import as_strided

CASES = 10000 if os.environ.get("GEMMTUNE_SOAK") else 300
FP8 = np.array([0x00, 0x38, 0x40, 0xB8, 0xC0], np.uint8)  # 0, 1, 2, -1, -2 of e4m3fn
BF16 = np.array([0x0000, 0x3F80, 0x4000, 0xBF80, 0xC000], np.uint16)


def seed():
    return int(os.environ.get("GEMMTUNE_SEED", "1"))


class Bits:
    """An array and the word of its element type, for as_type(); None: its own."""

    def __init__(self, array, word=None):
        self.array, self.word = array, word


def numbers(random, shape, word):
    if word in ("f32", "f16"):
        return Bits(random.integers(-2, 3, shape).astype({"f32": np.float32, "f16": np.float16}[word]))
    if word == "bf16":
        return Bits(BF16[random.integers(0, 5, shape)], word)
    if word == "f8_e4m3fn":
        return Bits(FP8[random.integers(0, 5, shape)], word)
    if word == "i8":
        return Bits(random.integers(-2, 3, shape).astype(np.int8))
    return Bits(random.integers(0, 256, shape).astype(np.uint8))  # two fp4 elements


def scales(random, shape, e8m0=False):
    if e8m0:
        return Bits(random.integers(126, 129, shape).astype(np.uint8))
    return Bits(np.array([0.5, 1, 2], np.float32)[random.integers(0, 3, shape)])


def size(random, *usual):
    """One of the usual sizes; now and then 1, rarely 0."""
    drawn = random.integers(0, 24)
    return 0 if drawn == 0 else 1 if drawn < 6 else int(random.choice(usual))


def blocks(length, of):
    return -(-length // of)


class Call:
    """What gemmtune.<function>(**operands, **words) gets; `result`: shape of y and the word of its type."""

    def __init__(self, function, operands, result, **words):
        self.function, self.operands, self.result, self.words = function, operands, result, words


def _leading(random, m):
    """The leading dimensions of an x with m rows."""
    if m and m % 2 == 0 and random.integers(0, 3) == 0:
        return (2, m // 2)
    return ((m,), (1, m), (m, 1), ())[random.integers(0, 4 if m == 1 else 3)]


def _scale_shape(random, *shape):
    """Dimensions of size 1 may be added; one element may stand for all rows."""
    if len(shape) == 1 and random.integers(0, 4) == 0:
        return ((), (1,), (1, 1))[random.integers(0, 3)]
    return (*shape, 1) if random.integers(0, 2) else shape


def linear(random):
    m, n, k, word = size(random, 2, 4, 5), size(random, 3, 16), size(random, 8, 33), random.choice(["f32", "f16", "bf16"])
    lead = _leading(random, m)
    operands = {"x": numbers(random, (*lead, k), word), "w": numbers(random, (n, k), word)}
    if random.integers(0, 2):
        operands["bias"] = numbers(random, (n,), word)
    return Call("linear", operands, ((*lead, n), word))


def linear_fp8(random):
    m, n, k = size(random, 2, 4), size(random, 3, 16), size(random, 8, 33)
    lead = _leading(random, m)
    one = lambda: scales(random, ((), (1,), (1, 1))[random.integers(0, 3)])
    return Call("linear", {"x": numbers(random, (*lead, k), "f8_e4m3fn"), "w": numbers(random, (n, k), "f8_e4m3fn"), "x_scale": one(),
                           "w_scale": one()}, ((*lead, n), "f16"))


def a8w8(random):
    m, n, k, word = size(random, 2, 4, 5), size(random, 3, 16), size(random, 8, 33), random.choice(["i8", "f8_e4m3fn"])
    lead = _leading(random, m)
    return Call("a8w8", {"x": numbers(random, (*lead, k), word), "w": numbers(random, (n, k), word),
                         "x_scale": scales(random, _scale_shape(random, m)), "w_scale": scales(random, _scale_shape(random, n))},
                ((*lead, n), "f16"))


def a8w8_blockscale(random):
    m, n, k, e8m0 = size(random, 2, 4, 5), size(random, 16, 130), size(random, 33, 300), bool(random.integers(0, 2))
    lead = _leading(random, m)
    of_x = (*lead, blocks(k, 128)) if random.integers(0, 2) else (m, blocks(k, 128))
    return Call("a8w8_blockscale", {"x": numbers(random, (*lead, k), "f8_e4m3fn"), "w": numbers(random, (n, k), "f8_e4m3fn"),
                                    "x_scale": scales(random, of_x, e8m0),
                                    "w_scale": scales(random, (blocks(n, 128), blocks(k, 128)), e8m0)}, ((*lead, n), "f16"))


def a4w4_blockscale(random):
    m, n, k = size(random, 2, 4, 5), size(random, 3, 16), 32 * size(random, 1, 3)
    lead = _leading(random, m)
    return Call("a4w4_blockscale", {"x": numbers(random, (*lead, k // 2), "fp4"), "w": numbers(random, (n, k // 2), "fp4"),
                                    "x_scale": scales(random, (m, k // 32), True), "w_scale": scales(random, (n, k // 32), True)},
                ((*lead, n), "f16"))


def a16w4(random):
    m, n, k, word = size(random, 2, 4, 5), size(random, 3, 16), 32 * size(random, 1, 3), random.choice(["f16", "bf16"])
    lead = _leading(random, m)
    operands = {"x": numbers(random, (*lead, k), word), "w": numbers(random, (n, k // 2), "fp4"),
                "w_scale": scales(random, (n, k // 32), True)}
    if random.integers(0, 2):
        operands["bias"] = numbers(random, (n,), word)
    return Call("a16w4", operands, ((*lead, n), word))


def a8w4(random):
    m, n, k = size(random, 2, 4, 5), size(random, 3, 16), 32 * size(random, 1, 3)
    lead = _leading(random, m)
    return Call("a8w4", {"x": numbers(random, (*lead, k), "f8_e4m3fn"), "w": numbers(random, (n, k // 2), "fp4"),
                         "x_scale": scales(random, _scale_shape(random, m)), "w_scale": scales(random, (n, k // 32), True)},
                ((*lead, n), "f16"))


def batched_bf16(random):
    b, m, n, k = size(random, 2, 3), size(random, 2, 4), size(random, 3, 16), size(random, 8, 33)
    operands = {"x": numbers(random, (b, m, k), "bf16"), "w": numbers(random, (b, n, k), "bf16")}
    if random.integers(0, 2):
        operands["bias"] = numbers(random, (n,), "bf16")
    return Call("batched_bf16", operands, ((b, m, n), "bf16"))


def batched_a8w8(random):
    b, m, n, k, word = size(random, 2, 3), size(random, 2, 4), size(random, 3, 16), size(random, 8, 33), random.choice(["i8", "f8_e4m3fn"])
    return Call("batched_a8w8", {"x": numbers(random, (b, m, k), word), "w": numbers(random, (b, n, k), word),
                                 "x_scale": scales(random, (b, m)), "w_scale": scales(random, (b, n))}, ((b, m, n), "bf16"))


def fused_moe(random):
    tokens, experts, topk = size(random, 2, 5), int(random.integers(2, 4)), int(random.integers(1, 3))
    inter, model, gated = 32 * int(random.integers(1, 3)), 32 * int(random.integers(1, 3)), bool(random.integers(0, 2))
    kind = random.choice(["none", "per_token", "per_1x32"])
    word = {"none": "f16", "per_token": "f8_e4m3fn", "per_1x32": "bf16"}[kind]
    of_w, per = ("fp4", 2) if kind == "per_1x32" else (word, 1)
    rows = inter * (2 if gated else 1)
    operands = {"x": numbers(random, (tokens, model), word), "w1": numbers(random, (experts, rows, model // per), of_w),
                "w2": numbers(random, (experts, model, inter // per), of_w),
                "topk_ids": Bits(random.integers(0, experts, (tokens, topk)).astype(np.int32)),
                "topk_weights": scales(random, (tokens, topk))}
    if kind == "per_token":
        operands["x_scale"] = Bits(scales(random, (tokens,)).array / 64)
        operands["w1_scale"] = Bits(scales(random, (experts, rows)).array / 64)
        operands["w2_scale"] = Bits(scales(random, (experts, model)).array / 64)
    if kind == "per_1x32":
        operands["w1_scale"] = Bits(random.integers(118, 121, (experts, rows, model // 32)).astype(np.uint8))
        operands["w2_scale"] = Bits(random.integers(118, 121, (experts, model, inter // 32)).astype(np.uint8))
    if random.integers(0, 2):
        operands["bias1"], operands["bias2"] = scales(random, (experts, rows)), scales(random, (experts, model))
    return Call("fused_moe", operands, ((tokens, model), "f16" if kind == "none" else "bf16"), quant_type=str(kind), gated=gated)


OPERATIONS = (linear, linear_fp8, a8w8, a8w8_blockscale, a4w4_blockscale, a16w4, a8w4, batched_bf16, batched_a8w8, fused_moe)


# ---- views with the values of a contiguous array --------------------------------------------------------------------------

def _sliced(random, array):
    """A part of a larger array."""
    room = np.zeros([length + int(random.integers(0, 4)) for length in array.shape], array.dtype)
    at = tuple(slice(offset := int(random.integers(0, large - length + 1)), offset + length)
               for large, length in zip(room.shape, array.shape))
    room[at] = array
    return room[at]


def _stepped(random, array):
    """Elements apart along one dimension."""
    axis = int(random.integers(0, array.ndim))
    room = np.zeros([length * (3 if i == axis else 1) for i, length in enumerate(array.shape)], array.dtype)
    at = tuple(slice(None, None, 3 if i == axis else 1) for i in range(array.ndim))
    room[at] = array
    return room[at]


def _transposed(random, array):
    """Another order of dimensions in memory."""
    order = random.permutation(array.ndim)
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def _odd_ones(random, array):
    """Strides of dimensions of size 1 are anything."""
    strides = [int(random.integers(0, 40)) * array.itemsize if length == 1 else step for length, step in zip(array.shape, array.strides)]
    return as_strided(array, array.shape, strides)


def _reversed(random, array):
    axis = int(random.integers(0, array.ndim))
    return np.ascontiguousarray(np.flip(array, axis))[tuple(slice(None, None, -1 if i == axis else 1) for i in range(array.ndim))]


def _read_only(random, array):
    array.flags.writeable = False
    return array


def _swapped(random, array):
    return array.astype(array.dtype.newbyteorder()) if array.itemsize > 1 else array


def _misaligned(random, array):
    room = np.zeros(array.nbytes + 1, np.uint8)
    moved = room[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def _field(random, array):
    """One member of records."""
    room = np.zeros(array.shape, [("before", np.uint8, (array.itemsize * int(random.integers(0, 3)),)), ("here", array.dtype),
                                  ("behind", np.uint8, (int(random.integers(0, 3)),))])
    room["here"] = array
    return room["here"]


STRIDED = (_sliced, _stepped, _transposed, _odd_ones)  # what PyTorch's tensors can be
ANY = (*STRIDED, _reversed, _read_only, _swapped, _misaligned, _field)


def view(random, bits, kinds):
    """A view with the same values, of a random kind or of two."""
    array = bits.array.copy()
    for _ in range(random.integers(1, 3) if array.ndim else 0):
        array = kinds[random.integers(0, len(kinds))](random, array)
    return Bits(array, bits.word)


def repeated(random, bits):
    """(the values of) an array whose elements along one dimension are one element, with stride 0."""
    if not bits.array.ndim or not bits.array.size:
        return bits
    axis = int(random.integers(0, bits.array.ndim))
    return Bits(np.broadcast_to(bits.array.take([0], axis), bits.array.shape), bits.word)


def output(random, call, dtype, may_be_read_only):
    """(out, the memory around it): a view of a larger array, which is full of 7; or one that may not be written."""
    shape = call.result[0]
    kind = random.integers(0, 12)
    if kind == 0:
        room = np.full([2 * length for length in shape], 7, dtype)
        return room[tuple(slice(None, None, 2) for _ in shape)], room
    if kind == 1:
        room = np.full(shape[::-1], 7, dtype)
        return room.T, room
    if kind == 2:
        room = np.full((1,) * len(shape), 7, dtype)
        return as_strided(room, shape, (0,) * len(shape)), room
    room = np.full([length + int(random.integers(0, 3)) for length in shape], 7, dtype)
    out = room[tuple(slice(0, length) for length in shape)]
    if kind == 3 and may_be_read_only:
        out.flags.writeable = False
    return out, room


# ---- the property ------------------------------------------------------------------------------------------------------------

BELONG_TO_ONE_CALL = ("x", "x_scale", "topk_ids", "topk_weights")  # what is copied where a kernel cannot read it
RESULTS = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}


def _values(array, word):
    return (array.astype(np.uint32) << 16).view(np.float32) if word == "bf16" else array.astype(np.float32)


def _is_plain(bits):
    array = bits.array
    return array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative


def _is_an_array(bits):
    """Native elements at whole distances: what gemmtune_read_arrays() can be asked about."""
    array = bits.array
    return array.dtype.isnative and all(step % array.itemsize == 0 for step in array.strides)


def _describe(views):
    return ", ".join(f"{name} {bits.array.dtype} {bits.array.shape} strides {bits.array.strides}" for name, bits in views.items())


class Properties:
    """Of a unittest.TestCase with `kinds` of views and run_call(call, operands, out): y into `out`, or an exception of `refusal`."""

    def check_operation(self, make):
        accepted = refused = 0
        for case in range(CASES):
            random = np.random.default_rng((seed(), OPERATIONS.index(make), case))
            call = make(random)
            self.what = f"GEMMTUNE_SEED={seed()}, case {case} of {make.__name__}"
            done = random.choice([self._check_views, self._check_views, self._check_views, self._check_overlap])(random, call)
            accepted += done
            refused += not done
        self.assertGreater(accepted, CASES / 5)
        self.assertGreater(refused, CASES / 20)

    def _expected(self, call, operands):
        shape, word = call.result
        out = np.zeros(shape, RESULTS[word])
        self.run_call(call, {name: Bits(np.array(bits.array, order="C"), bits.word) for name, bits in operands.items()}, out)
        return out

    def _check_same(self, call, found, expected):
        word = call.result[1]
        found, expected = _values(found, word), _values(expected, word)
        if call.function == "fused_moe":  # silu is not exact
            limit = 1e-2 * max(1e-3, np.abs(expected).max(initial=0))
            self.assertLessEqual(np.abs(found - expected).max(initial=0), limit, self.what)
        else:
            np.testing.assert_array_equal(found, expected, self.what)

    def _check_views(self, random, call):
        operands = dict(call.operands)
        if random.integers(0, 8) == 0:
            name = random.choice(list(operands))
            operands[name] = repeated(random, operands[name])
            views = dict(operands)
        else:
            views = {name: view(random, bits, self.kinds) if self._is_viewed(random, name) else bits for name, bits in operands.items()}
        turned = self._turn_a_scale(random, views)
        self.what += f": {_describe(views)}"
        expected = self._expected(call, operands)
        out, room = output(random, call, RESULTS[call.result[1]], _read_only in self.kinds)
        self.what += f", out strides {out.strides}"
        before = {name: bits.array.copy() for name, bits in views.items()}
        try:
            self.run_call(call, views, out)
        except self.refusal as error:
            self.assertGreater(len(str(error)), 20, self.what)
            self.assertTrue((room == 7).all(), self.what)
            must_be_read = all(_is_plain(bits) or (name in BELONG_TO_ONE_CALL and _is_an_array(bits)) for name, bits in views.items())
            out_is_plain = out.flags.c_contiguous and out.flags.writeable
            self.assertFalse(must_be_read and out_is_plain and not turned, f"{self.what}: {error}")
            return False
        self.assertFalse(turned, self.what)
        self.assertTrue(out.flags.writeable or not out.size, self.what)
        self._check_same(call, out, expected)
        for name, bits in views.items():
            np.testing.assert_array_equal(bits.array, before[name], self.what)
        if out.flags.writeable:
            out[...] = 7
        self.assertTrue((room == 7).all(), f"{self.what}: written around out")
        return True

    @staticmethod
    def _is_viewed(random, name):
        """Views of parameters are refused as a rule, and few calls would be left."""
        return random.integers(0, 10) < (5 if name in BELONG_TO_ONE_CALL else 1)

    @staticmethod
    def _turn_a_scale(random, views):
        """Now and then gives a matrix of scales the other way round, with as many elements: whether it did."""
        for name in ("x_scale", "w_scale", "w1_scale", "w2_scale"):
            scale = views.get(name)
            if scale is None or random.integers(0, 12):
                continue
            shape = [length for length in scale.array.shape if length != 1]
            if len(shape) < 2 or shape[-1] == shape[-2]:
                continue
            views[name] = Bits(np.ascontiguousarray(np.swapaxes(scale.array, -1, -2) if scale.array.shape[-1] != 1 else
                                                    scale.array.squeeze(-1).swapaxes(-1, -2)), scale.word)
            return views[name].array.squeeze().shape != scale.array.squeeze().shape
        return False

    def _check_overlap(self, random, call):
        """An output in the memory of one operand is refused exactly if they share it."""
        name = random.choice(list(call.operands))
        bits = call.operands[name]
        shape, word = call.result
        nothing = np.zeros(shape, RESULTS[word])
        room = np.zeros(2 * nothing.nbytes + bits.array.nbytes + 64, np.uint8)
        at, where = nothing.nbytes // 8 * 8 + 8, 8 * int(random.integers(0, (nothing.nbytes + bits.array.nbytes) // 8 + 2))
        operand = room[at:at + bits.array.nbytes].view(bits.array.dtype).reshape(bits.array.shape)
        operand[...] = bits.array
        out = room[where:where + nothing.nbytes].view(RESULTS[word]).reshape(shape)
        shared = bool(np.shares_memory(operand, out))
        self.what += f": {name} {operand.shape} at {at}, out {out.shape} at {where}"
        expected = self._expected(call, call.operands)
        try:
            self.run_call(call, {**call.operands, name: Bits(operand, bits.word)}, out)
        except self.refusal as error:
            self.assertTrue(shared, f"{self.what}: {error}")
            self.assertRegex(str(error), "overlaps", self.what)
            np.testing.assert_array_equal(operand, bits.array, self.what)
            return False
        self.assertFalse(shared, self.what)
        self._check_same(call, out, expected)
        np.testing.assert_array_equal(operand, bits.array, self.what)
        return True


def add_tests(case):
    """A test of each operation, so that one that fails does not hide others."""
    for make in OPERATIONS:
        def test(self, make=make):
            self.check_operation(make)
        setattr(case, f"test_{make.__name__}", test)
    return case
