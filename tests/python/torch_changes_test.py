"""What happens to operators and patched models that nobody asked for: derivatives, weights that change behind patch(), copies, layers that
are no plain nn.Linear; on a CPU."""

import copy
import io
import pickle
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import needs_torch  # noqa: F401
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune, weight_norm
from torch.utils._python_dispatch import TorchDispatchMode
from torch_models import Fp8Linear, GatedMlp, close, random_fp8

import gemmtune
import gemmtune.torch
from gemmtune import errors

ops = torch.ops.gemmtune
torch.manual_seed(1)
refused = "gemmtune computes no gradients"


def random(*shape):
    return torch.randn(shape).bfloat16()


class Operators(unittest.TestCase):
    """(name of the operator, its arguments, the positions of those that a derivative is asked of, options)"""

    def calls(self):
        x, w, bias = torch.randn(3, 64), torch.randn(8, 64), torch.randn(8)
        scales, powers = torch.rand(3), torch.full((8, 2), 127, dtype=torch.uint8)
        x8, w8, w4 = random_fp8((3, 64)), random_fp8((8, 64)), torch.zeros(8, 32, dtype=torch.uint8)
        x16, w16 = random(2, 3, 64), random(2, 8, 64)
        tokens, w1, w2 = random(5, 64), random(4, 64, 64), random(4, 64, 32)
        ids, weights = torch.zeros(5, 1, dtype=torch.int32), torch.ones(5, 1)
        biases = {"bias1": torch.randn(4, 64), "bias2": torch.randn(4, 64)}
        return [
            ("linear", (x, w, bias), (0, 1, 2), {}),
            ("a8w8", (x8, w8, scales, torch.rand(8), bias.bfloat16()), (2, 3, 4), {}),
            ("a8w8_blockscale", (random_fp8((3, 128)), random_fp8((128, 128)), torch.rand(3, 1), torch.rand(1, 1)), (2, 3), {}),
            ("a16w4", (random(3, 64), w4, powers, bias.bfloat16()), (0, 3), {}),
            ("a8w4", (x8, w4, scales, powers, bias.bfloat16()), (2, 4), {}),
            ("a16w4_nvfp4", (random(3, 64), w4, random_fp8((8, 4)), torch.rand(1), bias.bfloat16()), (0, 3, 4), {}),
            ("a8w4_nvfp4", (x8, w4, scales, random_fp8((8, 4)), torch.rand(()), bias.bfloat16()), (2, 4, 5), {}),
            ("a4w4_nvfp4", (torch.zeros(3, 32, dtype=torch.uint8), w4, random_fp8((3, 4)), random_fp8((8, 4)), torch.rand(1), torch.rand(1)),
             (4, 5), {}),
            ("a16w4_int4", (random(3, 64), w4, random(8, 2), torch.zeros(8, 2, dtype=torch.int8), bias.bfloat16()), (0, 2, 4), {}),
            ("a8w4_int4", (torch.zeros(3, 64, dtype=torch.int8), w4, scales, random(8, 1)), (2, 3), {}),
            ("batched_bf16", (x16, w16, bias.bfloat16()), (0, 1, 2), {}),
            ("batched_a8w8", (random_fp8((2, 3, 64)), random_fp8((2, 8, 64)), torch.rand(2, 3), torch.rand(2, 8)), (2, 3), {}),
            ("fused_moe", (tokens, w1, w2, ids, weights), (0, 1, 2, 4), biases),
            ("silu_and_mul", (x, torch.randn(3, 64)), (0, 1), {}),
        ]

    def each_operand(self):
        """(what it is, a function of the operand, the operand)"""
        for name, arguments, positions, options in self.calls():
            for position in positions:
                def call(operand, name=name, arguments=arguments, position=position, options=options):
                    return getattr(ops, name)(*arguments[:position], operand, *arguments[position + 1:], **options)

                def write(operand, name=name, arguments=arguments, position=position, options=options):
                    out = torch.empty_like(getattr(ops, name)(*arguments, **options))
                    getattr(ops, name + "_out")(*arguments[:position], operand, *arguments[position + 1:], out=out, **options)
                    return out

                yield f"{name} {position}", call, arguments[position]
                yield f"{name}_out {position}", write, arguments[position]

    def test_each_operator_refuses_each_derivative(self):
        for what, call, operand in self.each_operand():
            with self.subTest(what):
                with self.assertRaisesRegex(RuntimeError, refused):
                    call(operand.clone().requires_grad_())
                for transform in (lambda: torch.func.grad(lambda one: call(one).sum())(operand), lambda: torch.func.vjp(call, operand),
                                  lambda: torch.func.jacrev(call)(operand), lambda: torch.func.jvp(call, (operand,), (operand,)),
                                  lambda: torch.func.hessian(lambda one: call(one).sum())(operand)):
                    with self.assertRaisesRegex(errors.NeedsGradient, refused):
                        transform()
                with forward_ad.dual_level():
                    dual = forward_ad.make_dual(operand, operand)
                    with self.assertRaisesRegex(RuntimeError, refused):
                        call(dual)
                    with torch.no_grad(), self.assertRaisesRegex(RuntimeError, refused):
                        call(dual)
                    expected = call(operand)  # of no dual
                torch.testing.assert_close(call(operand), expected, rtol=0, atol=0)

    def test_out_that_needs_a_gradient(self):
        with self.assertRaisesRegex(RuntimeError, refused):
            ops.linear_out(torch.ones(2, 64), torch.ones(8, 64), out=torch.empty(2, 8, requires_grad=True))

    def test_what_a_transform_does_not_follow_runs(self):
        x, w = torch.randn(3, 64), torch.randn(8, 64)
        exact = x @ w.T
        close(self, torch.func.grad(lambda one: (ops.linear(one.detach(), w).detach() * one.sum()).sum())(x), torch.full((3, 64), exact.sum().item()), 1e-4)
        with forward_ad.dual_level(), torch.no_grad():
            close(self, ops.linear(x, w), exact, 1e-6)
        with self.assertRaisesRegex(errors.NeedsGradient, refused):
            torch.func.vmap(torch.func.grad(lambda one: ops.linear(one, w).sum()))(x)
        with self.assertRaisesRegex(RuntimeError, refused):
            torch.func.linearize(lambda one: ops.linear(one, w), x)

    def test_vmap_runs_each_element(self):
        x, w = torch.randn(3, 64), torch.randn(2, 8, 64)
        exact = torch.einsum("mk,bnk->bmn", x, w)
        close(self, torch.func.vmap(lambda one: ops.linear(x, one))(w), exact, 1e-6)
        close(self, torch.func.vmap(ops.linear.default, in_dims=(1, None))(x.t().contiguous(), w[0]), exact[0], 1e-6)
        nested = torch.func.vmap(lambda one: torch.func.vmap(lambda row: ops.linear(row, one))(x))(w)
        close(self, nested, exact, 1e-6)

        def write(one, out):
            ops.linear_out(x, one, out=out)
            return out

        close(self, torch.func.vmap(write)(w, torch.empty(2, 3, 8)), exact, 1e-6)
        with self.assertRaisesRegex(errors.Unsupported, "linear_out.default writes out, which vmap cannot follow"):
            torch.func.vmap(lambda one: write(one, torch.empty(3, 8)))(w)
        close(self, torch.func.functionalize(lambda one: ops.linear(x, one))(w[0]), exact[0], 1e-6)

    def test_a_tensor_on_meta(self):
        x, w = torch.randn(3, 64), torch.randn(8, 64)
        self.assertEqual(ops.linear(x.to("meta"), w.to("meta")).shape, (3, 8))
        with self.assertRaisesRegex(errors.InvalidArgument, "operands are on cpu and meta, expected one device"):
            ops.linear(x, w.to("meta"))


class Patched(unittest.TestCase):
    """A layer [64, 64] with a packed weight."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.table = Path(folder.name) / "tuned.csv"
        sizes = [{"M": 1, "N": n, "K": 64, "bias": False, "dtype": "bf16", "outdtype": "bf16", "bpreshuffle": True} for n in (64, 128)]
        done = gemmtune.tune(sizes, cls.table, libtype="tiled", search="random", iters=2, confirmations=1)
        assert done["exit_code"] == 0, done
        cls.context = gemmtune.use(cls.table)
        cls.addClassCleanup(gemmtune.use)

    def setUp(self):
        torch._dynamo.reset()
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, True)
        self.x = random(2, 64)

    def calls(self):
        counters = self.context.counters()
        return sum(counters[name] for name in ("exact", "range", "fine", "coarse", "untuned"))

    def packed(self, **options):
        model = nn.Sequential(nn.Linear(64, 64).bfloat16())
        with torch.no_grad():
            model[0].weight.mul_(2)  # a version that is not 0
        patched = gemmtune.torch.patch(model, **options)
        self.assertEqual(patched.packed, ["0"])
        return model, patched

    def check(self, model, packs, compiled=None):
        layer = model[0]
        for _ in range(2):
            close(self, (compiled or model)(self.x), functional.linear(self.x, layer.weight, layer.bias), 2e-2)
        self.assertEqual(layer.gemmtune_packs, packs)

    # ---- weights that change

    def changes(self):
        def merge_lora(layer):
            layer.weight.data += random(64, 64)

        def other_values(layer):
            layer.weight.data = random(64, 64)

        def other_parameter(layer):
            layer.weight = nn.Parameter(random(64, 64))

        def other_parameter_of_its_memory(layer):
            other, version = nn.Parameter(layer.weight.data), layer.weight._version
            self.assertGreater(version, 0)
            while other._version < version:
                other[0].mul_(1.5)
            layer.weight = other

        def sleep(layer):
            values, storage = layer.weight.clone(), layer.weight.untyped_storage()
            size = storage.nbytes()
            storage.resize_(0)
            with self.assertRaisesRegex(errors.InvalidArgument, r"weight of shape \[64, 64\] has no memory"):
                layer(self.x)
            storage.resize_(size)
            layer.weight.copy_(2 * values)

        state = {"weight": random(64, 64), "bias": random(64)}
        return {
            "in place": lambda layer: layer.weight.mul_(3),
            "some values": lambda layer: layer.weight[0].mul_(3),
            "in place, through data": lambda layer: layer.weight.data.mul_(3),
            "a LoRA is merged": merge_lora,
            "other values": other_values,
            "another parameter": other_parameter,
            "another parameter of the same memory": other_parameter_of_its_memory,
            "load_state_dict": lambda layer: layer.load_state_dict(state),
            "load_state_dict, assigned": lambda layer: layer.load_state_dict(state, assign=True),
            "sleep and wake": sleep,
        }

    def test_a_changed_weight_is_packed_again_or_runs_plain(self):
        for what, change in self.changes().items():
            for changed in ("pack", "plain"):
                with self.subTest(what, changed=changed):
                    model, patched = self.packed(changed=changed)
                    self.check(model, True)
                    change(model[0])
                    self.check(model, changed == "pack")
                    change(model[0])
                    self.check(model, changed == "pack")
                    patched.refresh()
                    self.check(model, True)
                    patched.undo()
                    self.assertIs(type(model[0]), nn.Linear)
        with self.assertRaisesRegex(errors.InvalidArgument, "changed is 'never', expected one of pack, plain"):
            gemmtune.torch.patch(model, changed="never")

    def test_layers_are_packed_without_a_tuned_row(self):
        model = nn.Sequential(nn.Linear(1024, 64, bias=False), nn.SiLU(), nn.Linear(64, 640)).bfloat16().requires_grad_(False)
        x = random(3, 1024)
        expected = model(x)
        with gemmtune.torch.patch(model) as patched:
            self.assertEqual(patched.packed, [])
        for pack in ("any", "panel16"):
            with gemmtune.torch.patch(model, pack=pack) as patched:
                self.assertEqual(patched.packed, ["0", "2"])
                close(self, model(x), expected, 2e-2)
                self.assertTrue(pack == "any" or {gemmtune.pack(one.weight, layout=pack).layout_name for one in (model[0], model[2])} == {pack})
        with self.assertRaisesRegex(errors.InvalidArgument, "layout is 'panel17', expected one of plain, any"):
            gemmtune.torch.patch(model, pack="panel17")
        self.assertIs(type(model[0]), nn.Linear)

    def test_a_changed_weight_in_a_compiled_model(self):
        for what, change in self.changes().items():
            if what == "sleep and wake":
                continue
            for changed in ("pack", "plain"):
                with self.subTest(what, changed=changed):
                    model, patched = self.packed(changed=changed)
                    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
                    model[0].gemmtune_weight.bits.zero_()
                    self.assertTrue(torch.equal(compiled(self.x), model[0].bias.expand(2, 64)), "it runs the packed weight")
                    change(model[0])
                    self.check(model, changed == "pack", compiled)

    def test_refresh_sees_what_a_call_cannot(self):
        model, patched = self.packed()
        model[0].weight.data[0].mul_(3)  # of other bytes than the call compares
        patched.refresh()
        self.check(model, True)

    def test_other_types_and_devices(self):
        model, _ = self.packed()
        model.float()
        x = self.x.float()
        close(self, model(x), functional.linear(x, model[0].weight, model[0].bias), 1e-6)
        self.assertFalse(model[0].gemmtune_packs)
        model.bfloat16()
        self.check(model, True)
        model.to("meta")
        self.assertEqual(model(self.x.to("meta")).shape, (2, 64))
        with self.assertRaisesRegex(RuntimeError, "meta"):
            model(self.x)

    def test_merged_layers(self):
        def model_of(bias=False, pack=True, **options):
            model = nn.ModuleDict({name: nn.Linear(64, 64, bias=bias).bfloat16() for name in ("wq", "wk")})
            for layer in model.values():
                layer.weight.mul_(2)
            patched = gemmtune.torch.patch(model, merge=[("wq", "wk")], pack=pack, **options)
            self.assertEqual((patched.packed, patched.merged), (["wq", "wk"] if pack else [], [["wq", "wk"]]))
            return model, patched, model["wq"].gemmtune_group

        for what, change in self.changes().items():
            together = what in ("in place", "some values", "in place, through data", "a LoRA is merged")
            if "load" in what or what == "sleep and wake":
                continue
            for changed in ("pack", "plain"):
                for member in ("wq", "wk"):
                    with self.subTest(what, changed=changed, member=member):
                        model, patched, group = model_of(changed=changed)

                        def check():
                            for x in (self.x, self.x.clone()):
                                for layer in model.values():
                                    close(self, layer(x), functional.linear(x, layer.weight), 2e-2)

                        check()
                        model["wq"](self.x)
                        change(model[member])  # before the other one has taken its columns
                        close(self, model["wk"](self.x), functional.linear(self.x, model["wk"].weight), 2e-2)
                        check()
                        self.assertEqual((group.apart, group.bits is not None), (not together, together and changed == "pack"))
                        patched.refresh()
                        check()
                        self.assertEqual((group.apart, group.bits is not None), (False, True))
        model, patched, group = model_of()
        other = 2 * model["wk"].weight
        close(self, torch.func.functional_call(model["wk"], {"weight": other}, self.x), functional.linear(self.x, other), 2e-2)
        close(self, model["wk"](self.x), functional.linear(self.x, model["wk"].weight), 2e-2)
        self.assertFalse(group.apart, "it was there for one call")

        def other_bias(layer):
            if layer.bias is not None:
                layer.bias.data = random(64)

        for options in ({}, {"pack": False}, {"bias": True}, {"bias": True, "pack": False}):
            for changes in (("in place", "other values", "another parameter"), ("bias", "in place"), ("load_state_dict",), ("tied",)):
                with self.subTest(options, changes=changes):
                    torch._dynamo.reset()
                    model, patched, group = model_of(**options)
                    compiled = torch.compile(lambda x: [layer(x) for layer in model.values()], fullgraph=True, backend="aot_eager")
                    together = True
                    for change in (None, *changes):
                        together = together and (change in (None, "in place") or change == "bias" and not options.get("bias"))
                        if change == "load_state_dict":
                            model["wk"].load_state_dict({name: random(*value.shape) for name, value in model["wk"].state_dict().items()}, assign=True)
                        elif change == "tied":
                            model["wk"].weight.data = model["wq"].weight.data
                        elif change is not None:
                            {**self.changes(), "bias": other_bias}[change](model["wk"])
                        before = self.calls()
                        found = compiled(self.x)
                        self.assertEqual(self.calls() - before, 1 if together else 2)
                        for y, layer in zip(found, model.values()):
                            close(self, y, functional.linear(self.x, layer.weight, layer.bias), 2e-2)

    def test_a_dropped_weight(self):
        model, patched = self.packed(keep_weight=False)
        expected, bias = model(self.x), model[0].bias
        for one in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.compile(model, fullgraph=True, backend="aot_eager")):
            close(self, one(self.x), expected, 1e-2)
        with self.assertRaisesRegex(errors.WrongType, "the plain weight was dropped"):
            model(self.x.float())
        model[0].weight = nn.Parameter(random(64, 64))
        self.check(model, True)
        patched.undo()
        self.assertIs(model[0].bias, bias)

    def test_gated_layers_run_their_kernel(self):
        class Names(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, arguments=(), options=None):
                seen.append(str(function))
                return function(*arguments, **(options or {}))

        for merge in (False, True):
            mlp = GatedMlp().bfloat16()
            expected = mlp(self.x)
            with gemmtune.torch.patch(nn.Sequential(mlp), merge=merge):
                seen = []
                with Names():
                    y = mlp(x=self.x)
                close(self, y, expected, 2e-2)
                self.assertEqual((seen.count("gemmtune.silu_and_mul.default"), seen.count("aten.silu.default")), (1, 0))
                mlp.double()
                close(self, mlp(self.x.double()), expected, 2e-2)

    # ---- copies

    def test_copies_are_as_before_patch(self):
        tree = nn.ModuleDict({"plain": nn.Linear(64, 64).bfloat16(), "mlp": GatedMlp().bfloat16(),
                              "group": nn.ModuleDict({name: nn.Linear(64, 64).bfloat16() for name in ("wq", "wk")})})
        gemmtune.torch.patch(tree, merge=[("wq", "wk")])
        layers = [tree["plain"], tree["mlp"], tree["group"]["wq"], tree["group"]["wk"]]
        expected = [layer(self.x) for layer in layers]
        file = io.BytesIO()
        torch.save(tree, file)
        file.seek(0)
        for what, one in (("deepcopy", copy.deepcopy(tree)), ("pickle", pickle.loads(pickle.dumps(tree))), ("torch.save", torch.load(file, weights_only=False)),
                          ("copy", nn.ModuleDict({name: copy.copy(layer) for name, layer in tree.items() if name != "group"} | {"group": copy.deepcopy(tree["group"])}))):
            with self.subTest(what):
                self.assertEqual([type(layer).__name__ for layer in (one["plain"], one["mlp"], one["group"]["wq"])],
                                 ["Linear", "GatedMlp", "Linear"])
                own = [one["plain"], one["mlp"], one["group"]["wq"], one["group"]["wk"]]
                self.assertEqual([name for layer in own for name in vars(layer) if name.startswith("gemmtune")], [])
                for layer, y in zip(own, expected):
                    close(self, layer(self.x), y, 2e-2)
        self.assertEqual(len(gemmtune.torch.patch(copy.deepcopy(tree)).layers), 6)
        fp8 = nn.Sequential(Fp8Linear(torch.randn(64, 64), "rows"))
        gemmtune.torch.patch(fp8)
        self.assertIs(type(copy.deepcopy(fp8)[0]), Fp8Linear)
        program = "import sys, torch; print(type(torch.load(sys.argv[1], weights_only=False)['plain']).__name__); print('gemmtune' in sys.modules)"
        with tempfile.NamedTemporaryFile() as saved:
            torch.save(nn.ModuleDict({"plain": tree["plain"]}), saved)
            saved.flush()
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", program, saved.name], capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.stdout.split(), ["Linear", "False"], done.stderr)

    # ---- layers that are no plain nn.Linear

    def test_computed_weights(self):
        computed = {"prune": lambda layer: prune.l1_unstructured(layer, "weight", 0.5), "weight_norm": weight_norm,
                    "parametrized": parametrizations.weight_norm}
        for what, compute in computed.items():
            with self.subTest(what), warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                model = nn.Sequential(nn.Linear(64, 64).bfloat16())
                compute(model[0])
                self.assertEqual(gemmtune.torch.patch(model).skipped, {"0": "its weight or bias is computed from other tensors"})
                model, patched = self.packed()
                compute(model[0])
                for parameter in model.parameters():
                    parameter.mul_(2)
                expected = copy.deepcopy(model) if what == "parametrized" else None
                close(self, model(self.x), functional.linear(self.x, self.weight_of(model[0], what), model[0].bias), 2e-2)
                patched.undo()
                close(self, model(self.x), functional.linear(self.x, self.weight_of(model[0], what), model[0].bias), 2e-2)
                self.assertFalse(any(kind.__module__.startswith("gemmtune") for kind in type(model[0]).__mro__))
                if expected is not None:
                    close(self, expected(self.x), model(self.x), 1e-6)
                    parametrize.remove_parametrizations(model[0], "weight")
                    self.assertIs(type(model[0]), nn.Linear)
        model, patched = self.packed()
        prune.l1_unstructured(model[0], "bias", 0.5)
        close(self, model(self.x), functional.linear(self.x, model[0].weight, model[0].bias_orig * model[0].bias_mask), 2e-2)
        close(self, torch.compile(model, backend="aot_eager")(self.x), model(self.x), 1e-2)
        patched.undo()
        self.assertEqual(gemmtune.torch.patch(model).skipped, {"0": "its weight or bias is computed from other tensors"})
        model, _ = self.packed()
        computed["prune"](model[0])
        prune.remove(model[0], "weight")
        self.check(model, True)

    def weight_of(self, layer, what):
        if what == "prune":
            return layer.weight_orig * layer.weight_mask
        magnitude, direction = ((layer.weight_g, layer.weight_v) if what == "weight_norm" else
                                (layer.parametrizations.weight.original0, layer.parametrizations.weight.original1))
        return direction * (magnitude / direction.norm(dim=1, keepdim=True))

    def test_subclasses_and_others(self):
        class Named(nn.Linear):
            def twice(self):
                return 2 * self.out_features

        class Scaled(nn.Linear):
            def forward(self, x):
                return 2 * super().forward(x)

        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.gate_up_proj = nn.Parameter(random(4, 64, 128))

        replaced = nn.Linear(64, 64).bfloat16()
        replaced.forward = lambda x: x
        strided = nn.Linear(64, 64).bfloat16()
        strided.weight = nn.Parameter(random(64, 96)[:, 16:80])
        model = nn.ModuleDict({"named": Named(64, 64).bfloat16(), "scaled": Scaled(64, 64).bfloat16(), "experts": Experts(), "replaced": replaced,
                               "strided": strided, "empty": nn.Linear(0, 64).bfloat16(), "none": nn.Linear(64, 0).bfloat16(),
                               "attention": nn.MultiheadAttention(64, 2).bfloat16(), "conv": nn.Conv1d(64, 64, 3)})
        expected = {name: model[name](self.x) for name in ("named", "scaled", "replaced", "strided", "none")}
        with gemmtune.torch.patch(model) as patched:
            self.assertEqual((patched.layers, patched.packed), (["named"], ["named"]))
            self.assertEqual(patched.skipped, {
                "scaled": "it is a Scaled, which has a forward of its own", "experts": "its weights are matrices of experts: gate_up_proj [4, 64, 128]",
                "replaced": "its forward was replaced", "strided": "weight has strides [96, 1] and shape [64, 64], which is not dense",
                "empty": "weight is empty, of shape [64, 0]", "none": "weight is empty, of shape [0, 64]",
                "attention.out_proj": "nn.MultiheadAttention reads its weight and does not call it"})
            self.assertEqual((model["named"].twice(), isinstance(model["named"], Named)), (128, True))
            for name, y in expected.items():
                close(self, model[name](self.x), y, 2e-2) if y.numel() else self.assertEqual(model[name](self.x).shape, y.shape)
            self.assertTrue(torch.equal(model["empty"](self.x[:, :0]), model["empty"].bias.expand(2, 64)))
            self.assertEqual(gemmtune.torch.patch(model).skipped["named"], "it is patched already")
        self.assertIs(type(model["named"]), Named)
        fp8 = nn.Sequential(Fp8Linear(torch.randn(64, 64), "rows"))
        with gemmtune.torch.patch(fp8) as patched:
            close(self, torch.compile(fp8, fullgraph=True, backend="aot_eager")(self.x), fp8(self.x), 1e-2)
            self.assertEqual((patched.layers, gemmtune.torch.patch(fp8).skipped), (["0"], {"0": "it is patched already"}))
        fp8[0].forward = lambda x: x
        self.assertEqual(gemmtune.torch.patch(fp8).skipped, {"0": "its forward was replaced"})
        model, _ = self.packed()
        model[0].weight.data = random(64, 96)[:, 16:80]
        self.check(model, False)

    def test_layers_of_transformers(self):
        try:
            from transformers import GPT2Config, GPT2LMHeadModel, MixtralConfig, MixtralForCausalLM
        except ImportError as reason:
            self.skipTest(f"no transformers: {reason}")
        tokens = torch.randint(0, 96, (1, 7))
        model = GPT2LMHeadModel(GPT2Config(vocab_size=96, n_positions=16, n_embd=64, n_layer=1, n_head=2)).bfloat16().eval()
        expected = model(tokens).logits
        with gemmtune.torch.patch(model) as patched:
            self.assertEqual((patched.layers, patched.packed), (["transformer.h.0.attn.c_proj", "lm_head"], ["transformer.h.0.attn.c_proj"]))
            self.assertIn("its weight is [K, N], which a CPU runs well only packed", patched.skipped["transformer.h.0.mlp.c_fc"])
            close(self, model(tokens).logits, expected, 3e-2)
            model.transformer.h[0].attn.c_proj.weight.mul_(-4)
            changed = model(tokens).logits
            close(self, torch.compile(model, backend="aot_eager")(tokens).logits, changed, 3e-2)
            self.assertEqual(gemmtune.torch.warm(model, [1]), 2)
            projection = model.transformer.h[0].attn.c_proj
        with gemmtune.torch.patch(model, changed="plain") as patched:
            projection.weight.mul_(1)
            close(self, model(tokens).logits, changed, 3e-2)
            self.assertIn("[K, N]", projection.gemmtune_weight.why)
            close(self, torch.compile(model, backend="aot_eager")(tokens).logits, changed, 3e-2)
        with gemmtune.torch.patch(model, keep_weight=False):
            self.assertIsNone(projection.weight)
            close(self, model(tokens).logits, changed, 3e-2)
            close(self, copy.deepcopy(model)(tokens).logits, changed, 3e-2)
        close(self, changed, model(tokens).logits, 3e-2)
        self.assertGreater((changed - expected).abs().max(), 0.1)
        close(self, copy.deepcopy(model)(tokens).logits, changed, 3e-2)
        config = MixtralConfig(vocab_size=96, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                               num_local_experts=4)
        model = MixtralForCausalLM(config).bfloat16().eval()
        expected = model(tokens).logits
        with gemmtune.torch.patch(model) as patched:
            experts = {name: why for name, why in patched.skipped.items() if "experts" in name}
            self.assertTrue(experts or any("experts" in name for name in patched.layers), patched.skipped)
            close(self, model(tokens).logits, expected, 3e-2)

    def test_quantize_of_torchao_behind_patch(self):
        try:
            from torchao.quantization import Int8WeightOnlyConfig, quantize_
        except ImportError as reason:
            self.skipTest(f"no torchao: {reason}")
        model, patched = self.packed()
        expected = model(self.x)
        quantize_(model, Int8WeightOnlyConfig())
        close(self, model(self.x), expected, 5e-2)
        self.assertFalse(model[0].gemmtune_packs)
        self.assertIn("weight is a", gemmtune.torch.patch(copy.deepcopy(model)).skipped["0"])
        patched.undo()
        close(self, model(self.x), expected, 5e-2)

    # ---- gradients

    def test_gradients_of_a_patched_model(self):
        torch.set_grad_enabled(True)

        def tree():
            model = nn.Sequential(nn.Linear(64, 64), GatedMlp(), nn.Linear(64, 64)).bfloat16().requires_grad_(False)
            model[0].weight.requires_grad_()
            return model

        x = self.x.clone().requires_grad_()
        plain = tree()
        (model := tree()).load_state_dict(plain.state_dict())
        plain(x).sum().backward()
        expected, by_x = plain[0].weight.grad, x.grad
        for merge in (False, True):
            with gemmtune.torch.patch(model, gradients="torch", merge=merge) as patched:
                self.assertEqual((len(patched), patched.gated), (5, ["1"]))
                for run in (model, torch.compile(model, backend="aot_eager")):
                    model[0].weight.grad = x.grad = None
                    run(x).sum().backward()
                    close(self, model[0].weight.grad, expected, 2e-2)
                    close(self, x.grad, by_x, 2e-2)
                close(self, torch.func.grad(lambda one: model(one).sum())(self.x), by_x, 2e-2)
                close(self, torch.func.grad(lambda one: torch.func.vmap(model)(one).sum())(self.x), by_x, 2e-2)
                close(self, torch.func.jvp(model, (self.x,), (self.x,))[1], torch.func.jvp(plain, (self.x,), (self.x,))[1], 3e-2)
                with torch.no_grad():
                    model[0].gemmtune_weight.bits.zero_()
                    self.assertTrue(torch.equal(model[0](self.x), model[0].bias.expand(2, 64)), "without a gradient it runs the packed weight")
        with gemmtune.torch.patch(model):
            for call in (lambda: model(x), lambda: torch.func.grad(lambda one: model(one).sum())(self.x), lambda: torch.func.jvp(model[2], (self.x,), (self.x,)),
                         lambda: torch.func.grad(lambda w: torch.func.functional_call(model[2], {"weight": w}, self.x).sum())(model[2].weight)):
                with self.assertRaisesRegex(RuntimeError, refused):
                    call()
        weights = torch.stack([model[2].weight, 2 * model[2].weight])
        with gemmtune.torch.patch(model), torch.no_grad():
            close(self, torch.func.vmap(lambda w: torch.func.functional_call(model[2], {"weight": w}, self.x))(weights),
                  torch.stack([functional.linear(self.x, w, model[2].bias) for w in weights]), 2e-2)
        with self.assertRaisesRegex(errors.InvalidArgument, "gradients is True, expected one of refuse, torch"):
            gemmtune.torch.patch(model, gradients=True)

    def test_a_lora_trains_and_is_merged(self):
        torch.set_grad_enabled(True)
        model, _ = self.packed(gradients="torch")
        model.requires_grad_(False)
        down, up = (nn.Parameter(0.1 * random(*shape)) for shape in ((4, 64), (64, 4)))
        optimizer = torch.optim.SGD([down, up], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            hidden = model(self.x) + self.x @ down.t() @ up.t()
            model(hidden).square().mean().backward()  # the second layer gets an input that needs a gradient
            self.assertTrue(all(one.grad is not None and one.grad.abs().max() > 0 for one in (down, up)))
            optimizer.step()
        torch.set_grad_enabled(False)
        self.check(model, True)
        expected = model(self.x) + self.x @ down.t() @ up.t()
        model[0].weight.data += up @ down
        close(self, model(self.x), expected, 2e-2)

    def test_scaled_layers_with_gradients(self):
        torch.set_grad_enabled(True)
        for kind in ("tensor", "rows", "blocks"):
            model = nn.Sequential(Fp8Linear(torch.randn(64, 64), kind))
            x = self.x.clone().requires_grad_()
            with gemmtune.torch.patch(model), self.assertRaisesRegex(RuntimeError, refused):
                model(x)
            with gemmtune.torch.patch(model, gradients="torch"):
                model(x).sum().backward()
                close(self, x.grad, model[0].exact.sum(0).expand(2, 64), 2e-2)


if __name__ == "__main__":
    unittest.main()
