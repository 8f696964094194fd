"""humming-kernels (the GEMMs of quantized weights that vLLM compiles at run time) as a peer, where the package is installed: MXFP4 weights with bf16
activations, with the configs that it chooses by itself. It compiles each kernel at its first call."""

import torch


def mxfp4_linear(case):
    """call(i) for an a16w4 case of mxfp4.py, which writes case.y. Raises ImportError if humming is not installed."""
    from humming.layer import HummingLayer

    layers = []
    for w, scale in zip(case.w, case.scale):
        layer = HummingLayer(shape_n=case.n, shape_k=case.k, weight_config={"quant_method": "mxfp4"}, torch_dtype=torch.bfloat16).cuda()
        layer.load_from_tensors({"weight": w, "weight_scale": scale})
        layer.transform()
        layers.append(layer)
    return lambda i: layers[i % len(layers)](case.x, outputs=case.y)
