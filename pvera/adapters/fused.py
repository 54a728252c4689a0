"""Expressions of several adapters with a backward pass of their own.

Each equals the plain expression in its docstring. Against it, it spares passes over large tensors and what
autograd would keep for the backward pass; how much, experiments/benchmark_speed.py measures.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .base import full_precision

PIECE = 2**18  # numbers of one tensor that stay in a processor's cache


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


def scale_at(y: Tensor, scale: Tensor, shift: Tensor | None, index: list[int]) -> Tensor:
    """y with y[:, :, index[i]] multiplied by scale[i], plus shift[i]. y (n, t, p, d) is overwritten; scale and shift
    (q, d) are not taken in y's type: the scale is near one and would lose its last digits."""
    if torch.is_grad_enabled():
        return _ScaleAt.apply(y, scale, shift, index)
    return _scale_at(y, scale, shift, index)


def _scale_at(y: Tensor, scale: Tensor, shift: Tensor | None, index: list[int]) -> Tensor:
    for (rows,) in _pieces(y):
        for i, j in enumerate(index):
            part = rows[:, j]
            part.copy_(part * scale[i] if shift is None else torch.addcmul(shift[i], part, scale[i]))
    return y


class _ScaleAt(Function):
    @staticmethod
    def forward(ctx, y, scale, shift, index):
        ctx.save_for_backward(torch.stack([y[:, :, j] for j in index], 2), scale)
        ctx.index = index
        ctx.mark_dirty(y)
        return _scale_at(y, scale, shift, index)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        old, scale = ctx.saved_tensors
        grad_y, grad_scale, grad_shift = grad.clone(), torch.zeros_like(scale), None
        if ctx.needs_input_grad[2]:
            grad_shift = torch.zeros_like(scale)
        for old_, grad_, grad_y_ in _pieces(old, grad, grad_y):
            for i, j in enumerate(ctx.index):
                part = full_precision(grad_[:, j])
                grad_scale[i] += (part * old_[:, i]).sum(0)
                if grad_shift is not None:
                    grad_shift[i] += part.sum(0)
                grad_y_[:, j] = part * scale[i]
        return grad_y, grad_scale, grad_shift, None


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
    z, divergence = torch.empty_like(noise), noise.new_empty(noise.shape[:2])
    for h_, noise_, z_, divergence_ in _pieces(h, noise, z, divergence):
        mu, log_var = (full_precision(h_) * d).unbind(1)
        sigma = torch.exp(0.5 * log_var)
        torch.addcmul(mu, noise_, sigma, out=z_)
        torch.sum(sigma.square_().sub_(log_var).addcmul_(mu, mu).sub_(1), (1, 2), out=divergence_)
    return z, divergence.mul_(0.5)


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
        grad_h, grad_d = torch.empty_like(h), torch.zeros_like(d)
        for h_, z_, grad_z_, weight, grad_h_ in _pieces(h, z, grad_z, grad_divergence[:, :, None, None], grad_h):
            h_ = full_precision(h_)
            grad = h_ * d  # becomes the gradient with respect to μ and log σ²
            mu, log_var = grad.unbind(1)
            log_var.exp_().sub_(1).mul_(weight)
            log_var.addcmul_(grad_z_, z_).addcmul_(grad_z_, mu, value=-1).mul_(0.5)
            mu.mul_(weight).add_(grad_z_)
            grad_d += (grad * h_).sum(0)
            grad_h_.copy_(grad.mul_(d))
        return grad_h, grad_d, None


def _pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Tensors (n, t, ...) as (rows, ...): on a processor so few rows at a time that what is computed of them stays
    in its cache."""
    rows = [tensor.flatten(0, 1) for tensor in tensors]
    size = max(1, PIECE // rows[0][0].numel()) if rows[0].device.type == "cpu" else len(rows[0])
    return zip(*(tensor.split(size) for tensor in rows))
