"""The KL term of PEFT's PVeRA layers, which PEFT does not offer (Eq. 8 and 9)."""

from typing import Any

import torch
from torch import Tensor, nn

from pvera.adapters.base import full_precision
from pvera.errors import InputError
from pvera.recompute import recomputing, require_gradient


class _Drawing:
    """PEFT's step from μ and log σ² to z, which keeps the KL term of each adapter's last pass."""

    def __init__(self, draw: Any):
        self.draw = draw
        self.terms: dict[str, Tensor] = {}

    def __call__(self, mu: Tensor, log_var: Tensor, adapter_name: str) -> Tensor:
        m, v = full_precision(mu), full_precision(log_var)
        term = 0.5 * (m**2 + v.exp() - v - 1).sum(-1).mean()  # KL(N(μ, σ²) ‖ N(0, I)), the mean over tokens
        if not recomputing():
            self.terms[adapter_name] = term
        return self.draw(mu, log_var, adapter_name)

    def __getstate__(self) -> dict:
        """Leave out the terms: a copy has had none of the original's passes."""
        return self.__dict__ | {"terms": {}}


def track_kl(peft_model: nn.Module) -> None:
    """Let the PVeRA layers of a PEFT model keep their KL terms from now on, for `kl_divergence`.

    It costs no further product. InputError without such layers.
    """
    layers = _layers(peft_model)
    if not layers:
        raise InputError("the model has no PVeRA layer of PEFT: call track_kl(peft_model) after get_peft_model()")
    for layer in layers:
        if not isinstance(layer._reparametrize, _Drawing):
            layer._reparametrize = _Drawing(layer._reparametrize)


def kl_divergence(peft_model: nn.Module) -> Tensor:
    """Return Σ_layers L_KL (Eq. 8, without β) of the last forward pass of a PEFT model: ½ Σ KL, a scalar in fp32.

    The mean over tokens of the divergence of each layer's z from N(0, I), for the active adapters. It has a gradient,
    so a training step adds it to the loss:

        pvera.track_kl(peft_model)                      # once
        loss = F.cross_entropy(peft_model(images), labels) + beta * pvera.kl_divergence(peft_model)

    RuntimeError before `track_kl` and a forward pass, in training after a pass under `no_grad`, and for merged or
    disabled adapters, which have no variance.
    """
    layers = _layers(peft_model)
    if any(layer.merged or layer.disable_adapters for layer in layers):
        raise RuntimeError("merged or disabled adapters have no KL term: call unmerge_adapter() or enable them first")
    terms = [
        layer._reparametrize.terms[name]
        for layer in layers
        if isinstance(layer._reparametrize, _Drawing)
        for name in layer.active_adapters
        if name in layer._reparametrize.terms
    ]
    if not terms:
        raise RuntimeError("no KL term: call track_kl(peft_model) once, then run a forward pass")
    kl = 0.5 * torch.stack([term.to(terms[0].device) for term in terms]).sum()
    if peft_model.training and any(d.requires_grad for d in layers[0].pvera_lambda_d.values()):
        require_gradient(kl)
    return kl


def _layers(peft_model: nn.Module) -> list[Any]:
    """Return PEFT's PVeRA layers, which are told by what they hold: PEFT is not imported."""
    return [m for m in peft_model.modules() if hasattr(m, "pvera_lambda_d") and hasattr(m, "_reparametrize")]
