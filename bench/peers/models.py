#!/usr/bin/env python3
"""Llama 3 and DeepSeek V3 in plain PyTorch, at the widths of gt's flavors 8B and 16B; trains a few steps on random tokens and
prints one line of JSON: median milliseconds a step and GiB at the peak. peers.py calls it.

  models.py MODEL MODE LAYERS BATCH LENGTH VOCAB STEPS       MODE: eager, block, whole, graphs
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rotate(x, table):  # [batch, length, heads, width]
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table[None, :, None]).flatten(3).to(x.dtype)


def attend(q, k, v, scale=None):
    out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True,
                                         scale=scale, enable_gqa=q.shape[2] != k.shape[2])
    return out.transpose(1, 2).flatten(2)


class SwiGlu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1, self.w2, self.w3 = linear(width, hidden), linear(hidden, width), linear(width, hidden)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class GroupedQueryAttention(nn.Module):
    def __init__(self, width=4096, heads=32, kv_heads=8):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.wq, self.wk, self.wv = linear(width, width), linear(width, kv_heads * self.head), linear(width, kv_heads * self.head)
        self.wo = linear(width, width)

    def forward(self, x, table):
        batch, length, _ = x.shape
        q = self.wq(x).view(batch, length, self.heads, self.head)
        k = self.wk(x).view(batch, length, self.kv_heads, self.head)
        v = self.wv(x).view(batch, length, self.kv_heads, self.head)
        return self.wo(attend(rotate(q, table), rotate(k, table), v))


class LatentAttention(nn.Module):
    def __init__(self, width=2048, heads=16, rank=512, nope=128, rope=64, value=128):
        super().__init__()
        self.heads, self.rank, self.nope, self.rope, self.value = heads, rank, nope, rope, value
        self.wq, self.wkv_a = linear(width, heads * (nope + rope)), linear(width, rank + rope)
        self.kv_norm, self.wkv_b = Norm(rank, 1e-6), linear(rank, heads * (nope + value))
        self.wo = linear(heads * value, width)

    def forward(self, x, table):
        batch, length, _ = x.shape
        q = self.wq(x).view(batch, length, self.heads, self.nope + self.rope)
        q_nope, q_rope = q.split([self.nope, self.rope], -1)
        q = torch.cat([q_nope, rotate(q_rope, table)], -1)
        latent, k_rope = self.wkv_a(x).split([self.rank, self.rope], -1)
        k_rope = rotate(k_rope.unsqueeze(2), table)
        kv = self.wkv_b(self.kv_norm(latent)).view(batch, length, self.heads, self.nope + self.value)
        k_nope, v = kv.split([self.nope, self.value], -1)
        k = torch.cat([k_nope, k_rope.expand(-1, -1, self.heads, -1)], -1)
        return self.wo(attend(q, k, v, (self.nope + self.rope) ** -0.5))


class Moe(nn.Module):
    def __init__(self, width=2048, hidden=1408, experts=64, top_k=6, shared=2):
        super().__init__()
        self.experts, self.top_k = experts, top_k
        self.gate = linear(width, experts)
        self.w1 = nn.Parameter(torch.empty(experts, hidden, width))
        self.w2 = nn.Parameter(torch.empty(experts, width, hidden))
        self.w3 = nn.Parameter(torch.empty(experts, hidden, width))
        self.shared = SwiGlu(width, shared * hidden)

    def forward(self, x):
        tokens = x.flatten(0, 1)
        scores = F.softmax(F.linear(tokens.float(), self.gate.weight.float()), -1)
        weights, chosen = scores.topk(self.top_k, -1, sorted=False)
        counts = torch.zeros(self.experts, device=x.device, dtype=torch.int32).scatter_add_(
            0, chosen.flatten(), torch.ones_like(chosen.flatten(), dtype=torch.int32))
        order = chosen.flatten().argsort(stable=True)
        rows = tokens[order // self.top_k]
        ends = counts.cumsum(0, dtype=torch.int32)
        h = F.silu(torch._grouped_mm(rows, self.w1.transpose(1, 2), ends)) * torch._grouped_mm(
            rows, self.w3.transpose(1, 2), ends)
        out = torch._grouped_mm(h, self.w2.transpose(1, 2), ends)
        out = out.float() * weights.flatten()[order].unsqueeze(1)
        mixed = torch.zeros_like(tokens).scatter_add(0, (order // self.top_k).unsqueeze(1).expand_as(out),
                                                     out.to(tokens.dtype))
        return (mixed + self.shared(tokens)).view_as(x)


class Block(nn.Module):
    def __init__(self, width, attention, ffn, eps):
        super().__init__()
        self.attention, self.ffn = attention, ffn
        self.norm1, self.norm2 = Norm(width, eps), Norm(width, eps)

    def forward(self, x, table):
        x = x + self.attention(self.norm1(x), table)
        return x + self.ffn(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, model, layers, length, vocab):
        super().__init__()
        llama = model == "llama3"
        width, eps, rope = (4096, 1e-5, 128) if llama else (2048, 1e-6, 64)
        self.embedding, self.norm, self.head = nn.Embedding(vocab, width), Norm(width, eps), linear(width, vocab)
        self.blocks = nn.ModuleList(
            Block(width, GroupedQueryAttention(), SwiGlu(4096, 14336), eps) if llama else
            Block(width, LatentAttention(), SwiGlu(2048, 10944) if i == 0 else Moe(), eps) for i in range(layers))
        angles = torch.outer(torch.arange(length), 1e4 ** (-torch.arange(0, rope, 2) / rope))
        self.table = torch.polar(torch.ones_like(angles), angles)

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.table)
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), labels.flatten())


def main():
    model_name, mode = sys.argv[1:3]
    layers, batch, length, vocab, steps = map(int, sys.argv[3:8])
    torch.manual_seed(0)
    torch.set_default_device("cuda")
    torch._dynamo.config.cache_size_limit = 64
    model = Decoder(model_name, layers, length, vocab)
    table = model.table
    model.to(torch.bfloat16)
    model.table = table
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
    if mode == "block":
        for block in model.blocks:
            block.compile()
    run = model
    if mode in ("whole", "graphs"):
        run = torch.compile(model, mode="reduce-overhead" if mode == "graphs" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    times = []
    for step in range(steps):
        tokens = torch.randint(vocab, (batch, length + 1))
        torch.cuda.synchronize()
        start = time.time()
        loss = run(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(1e3 * (time.time() - start))
        if step == 3:
            torch.cuda.reset_peak_memory_stats()
    # What belongs to a CUDA graph's pool does not count as allocated after the recording.
    peak = torch.cuda.max_memory_reserved() if mode == "graphs" else torch.cuda.max_memory_allocated()
    print(json.dumps({"ms": statistics.median(times[4:]), "best_ms": min(times[4:]), "gib": peak / 2**30}))


if __name__ == "__main__":
    main()
