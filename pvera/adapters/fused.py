"""Expressions of several adapters with a backward pass of their own.

Each equals the plain expression in its docstring. Against it, it spares passes over large tensors and what
autograd would keep for the backward pass; how much, experiments/benchmark_speed.py measures.
"""

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .base import full_precision


def add_products(y: Tensor, z: Tensor, M: Tensor, index: list[int]) -> Tensor:
    """y with z[:, :, i] @ M[i] added to y[:, :, index[i]]. y (n, t, p, d) is overwritten; z (n, t, q, r) and
    M (q, r, d) are taken in y's type."""
    z, M = z.to(y.dtype), M.to(y.dtype)
    if torch.is_grad_enabled():
        return _AddProducts.apply(y, z, M, index)
    return _add_products(y, z, M, index)


def _add_products(y: Tensor, z: Tensor, M: Tensor, index: list[int]) -> Tensor:
    rows, latents = y.flatten(0, 1), z.flatten(0, 1)
    for i, j in enumerate(index):
        part = rows[:, j]
        torch.addmm(part, latents[:, i], M[i], out=part)
    return y


class _AddProducts(Function):
    @staticmethod
    def forward(ctx, y, z, M, index):
        ctx.save_for_backward(z, M)
        ctx.index = index
        ctx.mark_dirty(y)
        return _add_products(y, z, M, index)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        z, M = ctx.saved_tensors
        rows, latents = grad.flatten(0, 1), z.flatten(0, 1)
        grad_z = grad_M = None
        if ctx.needs_input_grad[1]:
            grad_z = torch.empty_like(latents)
            for i, j in enumerate(ctx.index):
                torch.mm(rows[:, j], M[i].T, out=grad_z[:, i])
            grad_z = grad_z.view_as(z)
        if ctx.needs_input_grad[2]:
            grad_M = torch.stack([latents[:, i].T @ rows[:, j] for i, j in enumerate(ctx.index)])
        return grad, grad_z, grad_M, None


def split(batch: Tensor, parts: int) -> tuple[Tensor, ...]:
    """`batch` in equal parts, which may be overwritten: `batch` itself is not read again."""
    return _Split.apply(batch, parts)


def join(parts: list[Tensor]) -> Tensor:
    """The parts behind one another: of `split`, and overwritten, it is the old batch, without a copy."""
    return _Join.apply(*parts)


def _whole(parts: tuple[Tensor, ...]) -> Tensor:
    """The parts behind one another: the tensor that they are slices of, if they are, else a copy."""
    first, size = parts[0], len(parts[0])
    for i, part in enumerate(parts):
        same = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        place = first.storage_offset() + i * size * first.stride(0)
        like = part.shape == first.shape and part.stride() == first.stride()
        if not (same and like and part.storage_offset() == place):
            return torch.cat(parts)
    return first.as_strided((size * len(parts), *first.shape[1:]), first.stride(), first.storage_offset())


class _Split(Function):
    @staticmethod
    def forward(ctx, batch, parts):
        return batch.unsafe_chunk(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        return _whole(grads), None


class _Join(Function):
    @staticmethod
    def forward(ctx, *parts):
        ctx.parts = len(parts)
        return _whole(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad.unsafe_chunk(ctx.parts)


def draw(h: Tensor, d: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """z = μ + ε ⊙ σ (n, t, p, r), where μ, log σ² = h ⊙ d, and the divergence KL(N(μ, σ²) ‖ N(0, I)) of every
    token (n, t), summed over positions and latent.

    h (n, t, 2, p, r), d (2, p, r), noise ε (n, t, p, r). At least in fp32, whatever h is.
    """
    if torch.is_grad_enabled():
        return _Draw.apply(h, full_precision(d), noise)
    return _draw(h, full_precision(d), noise)


def _draw(h: Tensor, d: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    mu, log_var = (full_precision(h) * d).unbind(2)
    sigma = torch.exp(0.5 * log_var)
    z = torch.addcmul(mu, noise, sigma)
    divergence = sigma.square_().sub_(log_var).addcmul_(mu, mu).sub_(1).sum((2, 3))
    return z, 0.5 * divergence


class _Draw(Function):
    @staticmethod
    def forward(ctx, h, d, noise):
        z, divergence = _draw(h, d, noise)
        ctx.save_for_backward(h, d, z)
        return z, divergence

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_z, grad_divergence):
        h, d, z = ctx.saved_tensors
        weight = grad_divergence[:, :, None, None]
        h_full = full_precision(h)
        grad = h_full * d  # becomes the gradient with respect to μ and log σ²
        mu, log_var = grad.unbind(2)
        log_var.exp_().sub_(1).mul_(weight)
        log_var.addcmul_(grad_z, z).addcmul_(grad_z, mu, value=-1).mul_(0.5)
        mu.mul_(weight).add_(grad_z)
        grad_d = (grad * h_full).sum((0, 1))
        return grad.mul_(d).to(h.dtype), grad_d, None
