"""The memory peak of a Llama-shaped train step in PyTorch itself: plain, with torch.utils.checkpoint keeping the results
that `--compile.memory_policy default` keeps, or with nothing kept but the input of each layer. The peer of
`./gt bench memory`: parameters in float32, compute in bfloat16, AdamW, the loss in chunks."""
import argparse
import contextlib
import functools
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten
# What WhyKept in src/gt/passes/memory/memory_policy.cc keeps, as far as this model has it.
KEPT = {aten.mm.default, aten.addmm.default, aten.bmm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default}


def keep(context, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE


class Norm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        weight = self.weight.to(x.dtype)
        if x.is_cuda:
            return F.rms_norm(x, weight.shape, weight, 1e-5)
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight


class Linear(torch.nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(outside, inside).normal_(0, 0.02))

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


def rotate(x, table):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table[None, :, None]).reshape(x.shape).to(x.dtype)


class Block(torch.nn.Module):
    def __init__(self, width, heads, kv_heads, hidden):
        super().__init__()
        self.head = width // heads
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.wq, self.wo = Linear(width, width), Linear(width, width)
        self.wk, self.wv = (Linear(width, kv_heads * self.head) for _ in range(2))
        self.w1, self.w3, self.w2 = Linear(width, hidden), Linear(width, hidden), Linear(hidden, width)

    def forward(self, h, table):
        batch, length, width = h.shape
        x = self.norm1(h)
        query, key, value = (w(x).view(batch, length, -1, self.head) for w in (self.wq, self.wk, self.wv))
        out = F.scaled_dot_product_attention(
            rotate(query, table).transpose(1, 2), rotate(key, table).transpose(1, 2), value.transpose(1, 2),
            is_causal=True, enable_gqa=True)
        h = h + self.wo(out.transpose(1, 2).reshape(batch, length, width))
        x = self.norm2(h)
        return h + self.w2(F.silu(self.w1(x)) * self.w3(x))


class ChunkedLoss(torch.autograd.Function):
    """Loss and gradients of each stretch of the sequence before the next begins."""

    @staticmethod
    def forward(ctx, hidden, weight, labels, chunks):
        total, weight_gradient, hidden_gradients = None, None, []
        for part, wanted in zip(hidden.chunk(chunks, 1), labels.chunk(chunks, 1)):
            rows = part.reshape(-1, part.shape[-1])
            with torch.enable_grad():
                logits = F.linear(rows, weight).float().detach().requires_grad_()
                loss = F.cross_entropy(logits, wanted.reshape(-1), reduction="sum") / labels.numel()
            slope = torch.autograd.grad(loss, logits)[0].to(hidden.dtype)
            del logits
            hidden_gradients.append(slope.mm(weight).view(part.shape))
            weight_gradient = (slope.t().mm(rows) if weight_gradient is None
                               else torch.addmm(weight_gradient, slope.t(), rows))
            total = loss.detach() if total is None else total + loss.detach()
        ctx.save_for_backward(torch.cat(hidden_gradients, 1), weight_gradient)
        return total

    @staticmethod
    def backward(ctx, slope):
        hidden, weight = ctx.saved_tensors
        return hidden * slope.to(hidden.dtype), weight * slope.to(weight.dtype), None, None


class Model(torch.nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embedding = torch.nn.Parameter(torch.empty(a.vocab, a.width).normal_())
        self.layers = torch.nn.ModuleList(Block(a.width, a.heads, a.kv_heads, a.hidden) for _ in range(a.layers))
        self.norm, self.output = Norm(a.width), Linear(a.width, a.vocab)
        self.mode, self.chunks = a.mode, a.loss_chunks
        angle = torch.outer(torch.arange(a.length).float(),
                            500000.0 ** -(torch.arange(0, a.width // a.heads, 2) / (a.width // a.heads)))
        self.register_buffer("table", torch.polar(torch.ones_like(angle), angle), persistent=False)

    def forward(self, tokens, labels):
        h = F.embedding(tokens, self.embedding.to(torch.bfloat16))
        for layer in self.layers:
            if self.mode == "plain":
                h = layer(h, self.table)
            elif self.mode == "full":
                h = checkpoint(layer, h, self.table, use_reentrant=False)
            else:
                context = functools.partial(create_selective_checkpoint_contexts, keep)
                h = checkpoint(layer, h, self.table, use_reentrant=False, context_fn=context)
        return ChunkedLoss.apply(self.norm(h), self.output.weight.to(h.dtype), labels, self.chunks)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["plain", "selective", "full"], default="selective")
    for name, value in (("layers", 8), ("width", 4096), ("heads", 32), ("kv-heads", 8), ("hidden", 14336),
                        ("vocab", 128256), ("batch", 2), ("length", 4096), ("steps", 3), ("loss-chunks", 0)):
        parser.add_argument("--" + name, type=int, default=value)
    a = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if a.loss_chunks == 0:  # logits in float32 of at most 256 MiB, as gt has them
        a.loss_chunks = max(2, -(-a.batch * a.length * a.vocab * 4 // (256 << 20)))
    with torch.device(device):
        model = Model(a)
        numbers = torch.randint(a.vocab, (a.batch, a.length + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
    times, tracker = [], contextlib.nullcontext()
    for step in range(a.steps + 2):
        if step == 2 and device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        elif step == 2:  # the CPU's allocator counts nothing: PyTorch's tracker follows storages instead
            from torch.distributed._tools.mem_tracker import MemTracker
            tracker = MemTracker()
            tracker.track_external(model, optimizer, numbers, model.table)
        start = time.perf_counter()
        with tracker:
            model(numbers[:, :-1], numbers[:, 1:]).backward()
            if device == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if device == "cpu" and step == 2:  # tracking slows a step down, and one is enough
            peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
            tracker = contextlib.nullcontext()
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    print(f"PyTorch {torch.__version__} {a.mode}: {sorted(times[2:])[a.steps // 2] * 1e3:.1f} ms, "
          f"peak {peak / 2**20:.1f} MiB")


main()
