"""Captures the same Llama 3 train step with torch.fx's make_fx, symbolic batch, and prints the seconds it took."""
import argparse
import time

import torch
from torch.fx.experimental.proxy_tensor import make_fx

WIDTH, HEADS, FFN, VOCAB, LENGTH, BATCH = 256, 16, 768, 2048, 64, 8


def norm(x, weight):
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return (wide * scale).to(x.dtype) * weight


def rotate(x, table):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table[None, :, None]).reshape(x.shape).to(x.dtype)


def attention(x, wqkv, wo, table):
    batch, length, _ = x.shape
    head = WIDTH // HEADS
    query, key, value = (x @ wqkv.t()).view(batch, length, HEADS, 3, head).unbind(3)
    query, key = rotate(query, table), rotate(key, table)
    out = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True)
    return out.transpose(1, 2).reshape(batch, length, WIDTH) @ wo.t()


def loss_of(params, layers, table, tokens, labels):
    embedding, final_norm, output = params[:3]
    h = torch.nn.functional.embedding(tokens, embedding)
    for i in range(layers):
        wqkv, wo, norm1, norm2, w1, w2, w3 = params[3 + 7 * i:10 + 7 * i]
        h = h + attention(norm(h, norm1), wqkv, wo, table)
        x = norm(h, norm2)
        h = h + (torch.nn.functional.silu(x @ w1.t()) * (x @ w3.t())) @ w2.t()
    logits = norm(h, final_norm) @ output.t()
    return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=6)
    layers = parser.parse_args().layers
    shapes = [(VOCAB, WIDTH), (WIDTH,), (VOCAB, WIDTH)]
    for _ in range(layers):
        shapes += [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH,), (WIDTH,), (FFN, WIDTH), (WIDTH, FFN), (FFN, WIDTH)]
    params = [torch.randn(shape).requires_grad_() for shape in shapes]
    angles = torch.outer(torch.arange(LENGTH).float(), 500000.0 ** -(torch.arange(0, 16, 2).float() / 16))
    table = torch.polar(torch.ones_like(angles), angles)
    tokens = torch.randint(VOCAB, (BATCH, LENGTH))

    def step(params, tokens, labels):
        loss = loss_of(params, layers, table, tokens, labels)
        return [loss, *torch.autograd.grad(loss, params)]

    start = time.perf_counter()
    make_fx(step, tracing_mode="symbolic", _allow_non_fake_inputs=True)(params, tokens, tokens.clone())
    print(f"{time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
