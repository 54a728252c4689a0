"""`adapt`: a frozen transformer encoder with trainable adapters and a head, or with a grid.

    AdaptedModel     features, logits, loss, KL term and merge
    its base classes
      Grid           the members, which of them are active, and what they sample (grid.py)
      ToolSupport    what timm and transformers' Trainer ask of a model (tool_support.py)
    its parts
      Member         a method's adapters, one per encoder layer, and a linear head (grid.py)
      ModelHooks     call each active member's adapters for its part of the batch (hooks.py)
      MergedWeights  the frozen weights that a merge changed, with their old values (merging.py)

State lies where it is computed: `members`, `active`, `merged_member` and `unloaded` in Grid; the
rest, such as `backbone` and `encoder_layers`, here. `backbone` is the encoder that `adapt` was
given. The adapters themselves are in pvera/adapters, a file per method.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from pvera.adapters import Method
from pvera.adapters.base import full_precision
from pvera.adapters.pvera import total_loss
from pvera.adapters.stochastic import with_settings
from pvera.encoders import encoder_layers, require_whole_weights
from pvera.errors import InputError
from pvera.features import (
    POOLS,
    input_shape,
    pooled,
    read_token_mask,
    reads_text,
    require_inputs,
    require_parts_called,
)
from pvera.grid import Grid, Member
from pvera.hooks import ModelHooks
from pvera.merging import MergedWeights
from pvera.tool_support import ToolSupport


def adapt(
    encoder: nn.Module,
    method: Method | Sequence[Method],
    num_classes: int,
    seed: int | Sequence[int] = 0,
    pool: str = "first",
) -> "AdaptedModel":
    """Freeze an encoder and attach trainable adapters and a linear head.

    The model maps images (batch, 3, height, width) to logits (batch, classes); a text encoder's
    takes the mapping that a tokenizer returns. Trained tensors have the backbone's precision, at
    least fp32.

    Args:
        encoder: A timm vision transformer or a bare encoder of transformers (docs/backbones.md). It
            is used, not copied: `unload` gives it back.
        method: One method, or a sequence of them, such as PVeRA at several ranks: a grid, whose
            members train side by side over the one backbone. Each has adapters and a head of its
            own.
        num_classes: Size of the head; 0: features instead of logits. A head of your own can then
            replace `members[0].head`.
        seed: Seed of the frozen matrices, the initial values and the noise; one for all members, or
            one for each.
        pool: Text only: "first" token, or "mean" of all tokens but padding.

    Raises:
        InputError: The encoder cannot be adapted, or an argument is out of range.
    """
    return AdaptedModel(encoder, method, num_classes, seed, pool)


class Output(NamedTuple):
    """The mean loss of a batch, and its logits (batch, classes)."""

    loss: Tensor
    logits: Tensor


class AdaptedModel(Grid, ToolSupport):
    """A frozen encoder with adapters and heads, as `adapt` makes it.

    Only adapters and heads are trainable. The backbone stays in evaluation mode, without dropout
    and stochastic depth. As a context, the model is unloaded at the end. Several threads may
    predict images at a time, but not while another merges, samples or saves.
    """

    #: Weight of the KL term in the loss of `forward(labels=...)`.
    beta = 0.0

    def __init__(
        self,
        encoder: nn.Module,
        method: Method | Sequence[Method],
        num_classes: int,
        seed: int | Sequence[int] = 0,
        pool: str = "first",
        on_meta: bool = False,
    ):
        """Adapt `encoder` (see `adapt`); with `on_meta` it may lie on the meta device."""
        if pool not in POOLS or (pool != "first" and not reads_text(encoder)):
            raise InputError(
                f"pool must be one of {', '.join(POOLS)}, not {pool!r}; of images, the backbone "
                "pools"
            )
        require_unadapted(encoder)
        methods = list(method) if isinstance(method, Sequence) else [method]
        seeds = list(seed) if isinstance(seed, Sequence) else [seed] * len(methods)
        are_methods = all(isinstance(m, Method) for m in methods)
        if not methods or len(seeds) != len(methods) or not are_methods:
            raise InputError(
                "adapt() takes one method, or a non-empty sequence of methods and as many seeds"
            )
        layers = encoder_layers(encoder)
        input_shape(encoder)  # `save` needs it: fail before a training
        if not on_meta:
            require_whole_weights(encoder)
        require_parts_called(encoder, layers)

        members = [Member(m, layers, num_classes, s) for m, s in zip(methods, seeds, strict=True)]
        super().__init__(members)
        # A sequence, even of one method, keeps the axis of members in logits and KL terms.
        self.has_member_axis = not isinstance(method, Method)
        self.pool = pool
        self.encoder_layers = layers
        self.backbone = encoder.requires_grad_(False)
        self._merged_weights = MergedWeights()
        self._hooks = ModelHooks(self, encoder, layers)
        cast(Any, encoder)._adapted = True  # for `require_unadapted`
        self.train()

    def forward(
        self,
        inputs: Tensor | Mapping[str, Tensor] | None = None,
        *,
        pixel_values: Tensor | None = None,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> "Tensor | Output":
        """Compute the logits of images or texts.

        Args:
            inputs: Images or texts (see `adapt`).
            pixel_values: Images, under transformers' name.
            input_ids: Texts, under transformers' names.
            attention_mask: Of texts, 0 for padding.
            token_type_ids: Of texts.
            labels: (batch), or (batch, classes) of probabilities.

        Returns:
            Logits (batch, classes), or (members, batch, classes) of a grid. With `labels`, loss and
            logits: the cross entropy, to which training adds `beta` times the KL term (Eq. 8).
        """
        if inputs is None:
            text = {
                "input_ids": input_ids,
                "attention_mask": attention_mask,
                "token_type_ids": token_type_ids,
            }
            given = {name: tensor for name, tensor in text.items() if tensor is not None}
            inputs = given if pixel_values is None else pixel_values

        # With labels, the caller gets the loss: the KL term is needed only where it is added.
        # Without, the caller may ask for it. A compiled graph must not depend on `beta`.
        needs_kl = labels is None or (self.training and self.beta) or torch.compiler.is_compiling()
        with nullcontext() if needs_kl else self.without_kl():
            logits = self.classify(self.features(inputs))
        return logits if labels is None else self._output(logits, labels)

    def _output(self, logits: Tensor, labels: Tensor) -> Output:
        if self.has_member_axis:
            raise InputError("labels= gives one loss: compute those of a grid from its logits")
        loss = nn.functional.cross_entropy(full_precision(logits), labels)
        if self.training and self.beta:
            loss = total_loss(loss, self.kl_divergence(), self.beta)
        return Output(loss, logits)

    def features(self, inputs: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Compute what the heads read.

        Returns:
            (active members, batch, dim), or (1, batch, dim) if no adapter changes the backbone.

        Raises:
            InputError: `inputs` are neither images nor texts.
            RuntimeError: Another member is merged, or the model was unloaded.
        """
        require_inputs(inputs, self.backbone)
        self.require_backbone()
        if not self.active:
            raise InputError("no member is active: set `active` to the indices of some")
        merged = self.merged_member
        if merged is not None and self.active != [merged]:
            raise RuntimeError(f"member {merged} is merged: call unmerge_() to compute another one")
        if not torch.compiler.is_compiling():
            self._hooks.require_layers()
            self.set_checkpointing_mode()

        # One pass serves all members if no adapter changes the backbone.
        adapters_act = any(adapter.hook_points for adapter in self.members[0].adapters)
        active = self.active if adapters_act else self.active[:1]
        if not isinstance(inputs, Tensor):
            return self._text_features(inputs, active)
        # The hooks give each member its part of the batch, (members · batch, 3, height, width).
        images = inputs.repeat(len(active), 1, 1, 1) if len(active) > 1 else inputs
        features = pooled(self.backbone, self.backbone(images))
        return features.unflatten(0, (len(active), -1))

    def _text_features(self, texts: Mapping[str, Tensor], indices: list[int]) -> Tensor:
        """Make a pass per member: DeBERTa's position embeddings have no batch to repeat."""
        token_mask = read_token_mask(texts, self.pool)
        active = self.active
        features = []
        with with_settings(self.stochastic_adapters_of(active), token_mask=token_mask):
            try:
                for m in indices:
                    self.active = [m]
                    output = self.backbone(**texts)
                    features.append(pooled(self.backbone, output, self.pool, token_mask))
            finally:
                self.active = active
        return torch.stack(features)

    def classify(self, features: Tensor) -> Tensor:
        """Return the heads' logits for `features`."""
        features = features.expand(len(self.active), -1, -1)
        members = [self.members[m] for m in self.active]
        logits = [member.classify(f) for member, f in zip(members, features, strict=True)]
        return torch.stack(logits) if self.has_member_axis else logits[0]

    def kl_divergence(self) -> Tensor:
        """Return Σ_layers L_KL (Eq. 8, without β) of the last forward pass.

        Returns:
            A scalar, or (active members,) of a grid, in fp32 or better; zero for methods without
            a KL term.

        Raises:
            RuntimeError: The model is merged, and so has no variance, or unloaded; or the pass had
                no KL term, or in training none with a gradient.
        """
        self.require_backbone()
        self.require_unmerged("has no KL term")
        device = self.encoder_layers[0].qkv_linears[0][0].weight.device
        terms = [
            torch.as_tensor(self.members[m].kl_divergence(), device=device) for m in self.active
        ]
        return torch.stack(terms) if self.has_member_axis else terms[0]

    def train(self, mode: bool = True) -> "AdaptedModel":
        """Set the mode of adapters and heads; the backbone stays in evaluation mode."""
        if mode:
            self.require_unmerged("cannot be trained")
        super().train(mode)
        self.backbone.eval()
        return self

    @contextmanager
    def inference(self) -> Iterator["AdaptedModel"]:
        """Predict inside at the least cost: merged if possible, without gradients and KL term.

        Afterwards, weights and mode are as before.
        """
        mode = self.training
        merged = self.merged
        try:
            self.eval()
            # What cannot be merged is computed as it is: several members, a method that is not
            # linear, weights that cannot be changed, or NaN, which the logits then show.
            with suppress(InputError):
                self.merge_()
            with self.without_kl(), torch.inference_mode():
                yield self
        finally:
            if not merged:
                self.unmerge_()
            self.train(mode)

    def merge_(self) -> "AdaptedModel":
        """Merge the adapters (PVeRA's mean, Eq. 10) into the frozen weights.

        Inference then has the backbone's cost, and `backbone.state_dict()` holds the merged
        weights. `unmerge_` restores the original ones bit for bit.

        Raises:
            InputError: Several members are active, the method is not linear, or the weights cannot
                be changed.
            RuntimeError: Another member is merged.
        """
        member = self.one_active_member("merged")
        self.require_backbone()
        if self.merged_member == self.active[0]:
            return self
        self.require_unmerged("holds another member")
        self._merged_weights.merge(self.backbone, self.encoder_layers, member)
        self.merged_member = self.active[0]
        return self.eval()

    def unmerge_(self) -> "AdaptedModel":
        """Undo `merge_`."""
        self._merged_weights.undo()
        self.merged_member = None
        return self

    def unload(self) -> nn.Module:
        """Remove the adapters and return the frozen backbone with its original weights.

        The model computes nothing afterwards: RuntimeError.
        """
        if not self.unloaded:
            self.unmerge_()
            self._hooks.detach()
            self.unloaded = True
            cast(Any, self.backbone)._adapted = False
        return self.backbone

    def __enter__(self) -> "AdaptedModel":
        return self

    def __exit__(self, *_) -> None:
        self.unload()

    def state_dict(self, *args: Any, **options: Any) -> Any:
        """Return the state as any module does. RuntimeError for a merged model."""
        self.require_unmerged("has no state of its own")
        return super().state_dict(*args, **options)

    def _load_from_state_dict(self, *args: Any) -> None:
        self.require_unmerged("takes no state")
        super()._load_from_state_dict(*args)


def require_unadapted(encoder: nn.Module) -> None:
    """Raise InputError for a backbone that an adapted model holds."""
    if getattr(encoder, "_adapted", False):
        raise InputError(
            "this backbone has adapters already; call unload() on the adapted model first"
        )


def require_adapted(model: object, call: str) -> None:
    """Raise InputError unless `model`, given to `call`, is an AdaptedModel."""
    if not isinstance(model, AdaptedModel):
        raise InputError(
            f"{call}() takes a model that adapt() returned, not {type(model).__name__}"
        )
