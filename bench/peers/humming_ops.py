"""humming-kernels (the GEMMs of quantized weights that vLLM compiles at run time) as a peer, where the package is installed: MXFP4, NVFP4 and int4 weights
with bf16 activations, with the configs that it chooses by itself. It compiles each kernel at its first call, by NVRTC where cuda-bindings is installed."""

import torch


def linear(case):
    """call(i) for a case of mxfp4.py with bf16 x, which writes case.y. Raises ImportError if humming is not installed."""
    from humming.layer import HummingLayer

    def tensors(w, scale):
        if case.form == "a16w4_int4":  # 0 to 15, of which 8 is zero
            return {"weight_packed": (w ^ 0x88).view(torch.int32), "weight_scale": scale}
        if case.form == "a16w4_nvfp4":
            return {"weight": w, "weight_scale": scale, "weight_scale_2": case.global_scale}
        return {"weight": w, "weight_scale": scale}

    def config():  # a layer adds to its own
        if case.form == "a16w4_int4":
            from humming.schema.compressed_tensors import CompressedTensorsWeightSchema

            return CompressedTensorsWeightSchema(format="pack-quantized", type="int", num_bits=4, strategy="group",
                                                 group_size=case.k // case.scale[0].shape[1])
        if case.form == "a16w4_nvfp4":
            return {"quant_method": "modelopt", "quant_algo": "nvfp4"}
        return {"quant_method": "mxfp4"}

    layers = []
    for w, scale in zip(case.w, case.scale):
        layer = HummingLayer(shape_n=case.n, shape_k=case.k, weight_config=config(), torch_dtype=torch.bfloat16).cuda()
        layer.load_from_tensors(tensors(w, scale))
        layer.transform()
        layers.append(layer)
    return lambda i: layers[i % len(layers)](case.x, outputs=case.y)
