"""What a row of the published steps says: the parsing of its columns, and the reasons to leave it out."""

from __future__ import annotations

import re

Row = dict[str, str]

DTYPES = {
    "fp32": "float32",
    "fp32 (tf32 matmul default off)": "float32",
    "fp32 (cuDNN conv TF32 default on)": "float32",
    "fp32 flag (TF32 conv likely: >67 TFLOP/s)": "float32",
    "tf32": "tf32",
    "tf32 conv+matmul (fp32 flag, NGC 20.10 default)": "tf32",
    "tf32 (fp32 flag, NGC default on Ampere+)": "tf32",
    "fp64": "float64",
    "fp16": "float16",
    "fp16 weights": "float16",
    "bf16 weights": "bfloat16",
    "amp_fp16": "amp-float16",
    "fp16/amp": "amp-float16",
}
#: By the source's word; None: no update inside. ``jitlamb`` and ``bert adam`` are the repository's own optimizers.
OPTIMIZERS = {
    "none": None,
    "none (fwd+loss+bwd, zero_grad inside)": None,
    "none (fwd + bwd only)": None,
    "none (zero_grad, fwd, logits.sum, bwd)": None,
    "unknown": "sgd",
    "unknown (entire training)": "adam",
    "sgd": "sgd",
    "sgd momentum": "sgd momentum",
    "sgd_momentum0.9": "sgd momentum",
    "adam": "adam",
    "adam (fused in later versions)": "adam",
    "bert adam": "adam",
    "jitlamb": "adam",
}
#: Ampere and later: where float32 convolutions run in TF32 unless told otherwise.
_TENSOR_FLOAT = re.compile(r"A10|A30|A40|RTX (30|40|50)|RTX A\d|RTX PRO|Ada|L4|H100|H200|B200|B300")
#: Network descriptions whose steps differ in length, or whose time depends on more than shapes.
_VARIABLE = {
    "GNMT": "sentences of different lengths",
    "Tacotron2": "texts and spectrograms of different lengths",
    "Mask R-CNN": "images and detections of different sizes, data loading inside",
    "SSD": "data loading inside",
}
_QUANTISED = re.compile(r"gptq|awq|bnb", re.IGNORECASE)
_FAMILIES = (
    ("detection", r"Mask R-CNN|SSD|nnU-Net|owlv2"),
    ("speech", r"WaveGlow|Tacotron|Jasper|QuartzNet|FastPitch|HiFi-GAN|whisper|ast-finetuned"),
    ("recommender", r"NeuMF|DLRM"),
    ("recurrent", r"LSTM|GRU|GNMT"),
    ("vision-transformer",
     r"timm:.*(vit|deit|swin|beit|cait|xcit|eva|pit_|twins|coat|visformer|volo|nest_|tnt_|sequencer|(?<!conv)mixer_|resmlp|gmlp|hiera|"
     r"edgenext|efficientformer|poolformer|caformer|swiftformer|halo|lambda|botnet|bat_|aimv2|naflex|pvt)"
     r"|transformers:.*(vit|beit|data2vec-vision|clip|videomae|nsfw|timesformer)"),
    ("vision-conv", r"torchvision:|timm:|efficientnet|ResNet"),
    ("language", r"transformers:|bert|Transformer-XL"),
)  # fmt: skip


def left_out(row: Row) -> str | None:
    """Why ``row`` is no step that placer predicts; None for one that is."""
    notes, network = row["notes"], row["network"]
    checks: tuple[tuple[bool, str], ...] = (
        (row["gpu_norm"] == "CPU", "runs on a CPU"),
        (row["gpu_norm"].startswith("unknown"), "GPU not named"),
        (row["gpu_count"] != "1", "several GPUs"),
        ("DDP" in network, "distributed"),
        ("Lua" in row["torch_version"], "Lua Torch, not PyTorch"),
        (row["compiled"] not in ("no", "no (jit lamb)"), f"not eager: {row['compiled']}"),
        ("UNSTABLE" in notes, "unstable: the median is more than 1.5 times the fastest step"),
        (_throttled(row), "the container's CPU quota throttles the host"),
        (bool(_QUANTISED.search(row["dtype"] + network)), "quantised weights"),
        ("bettertransformer" in notes, "BetterTransformer's nested tensors"),
        ("LoRA" in network, "adapters of another library, inside the Trainer's own loop"),
        (" generate " in network, "many steps of different lengths"),
        ("data pipeline inside" in notes or "DataLoader" in notes, "data loading inside"),
        ("from img/s" in notes, "data loading inside"),
        ("wall mean" in notes, "faster than float32, which it names, allows"),
        ("hipMalloc" in notes, "device memory is allocated inside"),
        (not row["batch"], "batch not said"),
        (row["dtype"] not in DTYPES, f"dtype not known: {row['dtype']}"),
        (row["optimizer"] not in OPTIMIZERS, f"optimizer not known: {row['optimizer']}"),
    )
    for holds, reason in checks:
        if holds:
            return reason
    return next((reason for name, reason in _VARIABLE.items() if name in network), None)


def _throttled(row: Row) -> bool:
    """Whether a container's CPU quota stops the host: its steps sit on multiples of 100 ms.

    The quota strikes some steps and spares others, so that a step's median leaves its fastest.
    """
    found = re.search(r"min ([\d.]+); mean ([\d.]+); env openbayes", row["notes"])
    if found is None or row["gpu_norm"] != "RTX 2080":
        return False
    return float(row["step_ms"]) > 1.1 * float(found[1]) or float(found[2]) > 1.1 * float(found[1])


def family_of(network: str) -> str:
    """The kind of network, by its name."""
    return next((family for family, pattern in _FAMILIES if re.search(pattern, network)), "other")


def network_of(row: Row) -> str:
    """The network's name without what the row says elsewhere: attention, task and decoding."""
    name = re.sub(r" ?\((attn=\w+|text-generation|feature-extraction|[\w-]+, prefill/forward)\)", "", row["network"])
    name = re.sub(r"^bert-base SQuAD fine-tune \(NVIDIA DLE\)", "transformers:bert-base SQuAD", name)
    name = re.sub(r" decode step| forward \(encoder \+ 1 decoder call\)", "", name)
    return name.strip()


def input_of(row: Row) -> tuple[int, ...]:
    """Dimensions of the batch: of images and features as written, of texts (batch, tokens).

    Of decoding: (batch, tokens in the cache), half of the new tokens included.
    """
    text = row["input"]
    if found := re.fullmatch(r"(\d+(?:x\d+)+)(?: mel| \(.*\)| \+ .*)?", text):
        return tuple(map(int, found[1].split("x")))
    if found := re.match(r"(\d+)x(\d+) tokens", text):
        return int(found[1]), int(found[2])
    if found := re.match(r"(\d+)x1 token, prompt (\d+)(?:, (\d+) new tokens)?", text):
        return int(found[1]), int(found[2]) + int(found[3] or 0) // 2
    return ()


def tokens_of(row: Row) -> tuple[int, ...]:
    """(texts, tokens) that go with the images of an image-and-text network."""
    found = re.search(r"\+ (\d+)x(\d+) tokens", row["input"])
    return (int(found[1]), int(found[2])) if found else ()


def dtype_of(row: Row) -> str:
    """What the step computes in; ``amp-`` where autocast chooses op by op.

    NVIDIA's fine-tuning of BERT means apex's level O2 by half precision: weights and activations are kept in float16
    (NVIDIA/DeepLearningExamples, PyTorch/LanguageModeling/BERT/run_squad.py, commit 0663b67c).
    """
    dtype = DTYPES[row["dtype"]]
    return dtype.removeprefix("amp-") if row["network"].startswith("bert-base SQuAD") else dtype


def conv_tf32(row: Row) -> bool:
    """Whether float32 convolutions run in TF32."""
    dtype = row["dtype"]
    if dtype.startswith("tf32") or "TF32" in dtype:
        return True
    return dtype == "fp32" and bool(_TENSOR_FLOAT.search(row["gpu_norm"])) and row["source"] != "neusight"


def torch_of(row: Row) -> str | None:
    """The version of torch, None where the source does not say."""
    return None if row["torch_version"] in ("unknown", "") else row["torch_version"]


def torch_is_2(row: Row) -> bool:
    """Whether the step ran with torch 2: fused attention exists, and ``zero_grad`` deletes gradients.

    Where the source names no version, its CUDA or ROCm tells: CUDA 12 and ROCm 6 came with torch 2.
    """
    version = torch_of(row)
    if version is not None:
        found = re.search(r"(\d+)\.(\d\d)(?!\d)", version) if version.startswith("NGC") else None
        return int(found[1]) >= 23 if found else version.startswith("2")
    return row["cuda"].startswith(("12", "13", "rocm 6")) or "Radeon" in row["gpu"]


def attention_of(row: Row) -> str:
    """How attention is computed: eager products and softmax, the fused ``sdpa``, or ``flash``."""
    network = row["network"]
    if found := re.search(r"attn=(eager|sdpa|flash)", network):
        return found[1]
    if "fa2" in row["notes"]:
        return "flash"
    if row["source"] == "neusight":
        return "eager"
    if network.startswith("timm:"):
        return "sdpa" if torch_is_2(row) else "eager"
    return "eager" if network.startswith(("transformers:", "bert")) else ""


def caveats_of(row: Row) -> tuple[str, ...]:
    """What makes the row's time less trustworthy."""
    notes, found = row["notes"], []
    for mark, caveat in (
        ("empty_cache", "device memory may be allocated inside"),
        ("network kept apart", "kept apart from the steps: for validation only"),
        ("rounded to 1 ms", "rounded to 1 ms"),
        ("profiler overhead", "the profiler's overhead is inside"),
        ("wall_ms_per_step", "step time and throughput differ by more than 2 %"),
        ("per token latency", "one token of generate(), its Python inside"),
        ("generate", "one token of generate(), its Python inside"),
        ("evaluation loop", "data loading may be inside"),
        ("may be included", "preprocessing may be inside"),
        ("data feed inside", "the host's data feed is inside"),
        ("best epoch throughput", "from the throughput of an epoch"),
        ("NO_OPT", "a build without optimised attention kernels"),
    ):
        if mark in notes and caveat not in found:
            found.append(caveat)
    if row["source"] == "nvidia-dle":
        found.append("slow first steps are inside the mean")
    if row["source"] == "u39kun" and row["mode"] == "train":
        found.append("the input's gradient is copied to the host")
    if row["source"] == "lcy-seso/Carrot" and row["mode"] == "infer":
        found.append("gradients are recorded, and the last steps are not waited for")
    if row["optimizer"] == "unknown":
        found.append("optimizer not said; plain SGD assumed")
    if row["optimizer"] in ("jitlamb", "bert adam"):
        found.append(f"the source's {row['optimizer']} is priced as Adam")
    if row["dtype"] == "fp16/amp":
        found.append("half precision or autocast: not said which")
    return tuple(found)
