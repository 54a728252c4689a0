"""What timm and transformers' Trainer ask of an adapted model."""

from collections.abc import Sequence
from typing import Any, cast

from torch import nn

from pvera.encoders import EncoderLayer
from pvera.features import input_shape
from pvera.grid import Member


class ToolSupport(nn.Module):
    """Methods of `AdaptedModel` under the names that timm and transformers' Trainer know."""

    backbone: nn.Module
    members: Sequence[Member]
    encoder_layers: list[EncoderLayer]

    @property
    def pretrained_cfg(self) -> Any:
        """The backbone's size and normalisation of images.

        `timm.data.resolve_model_data_config` reads it.
        """
        config: Any = self.backbone.pretrained_cfg
        # A model made with `img_size=` has another size than its configuration.
        return config | {"input_size": input_shape(self.backbone)}

    def no_weight_decay(self) -> set[str]:
        """Return the names of the adapters' vectors, which timm's optimizers do not decay.

        Each stands also as timm's pattern for any prefix, such as that of a compiled model.
        """
        names = set()
        for m, member in enumerate(self.members):
            for i, adapter in enumerate(member.adapters):
                names |= {f"members.{m}.layers.{i}.{name}" for name in adapter.vectors}
        return names | {f"*.{name}" for name in names}

    def parameter_groups(self, lr: float, head_lr: float | None = None) -> list[dict[str, Any]]:
        """Return what all members train, in groups for an optimizer of torch or timm.

        The groups of the adapters' vectors (`no_weight_decay`) and of one-dimensional tensors, such
        as biases, have a weight decay of zero. The others have the optimizer's.

        Args:
            lr: Learning rate of the adapters.
            head_lr: Learning rate of the heads; None: that of the adapters.

        Returns:
            At most four groups: adapters and heads, each with and without weight decay.
        """
        if head_lr is None:
            head_lr = lr
        vectors = self.no_weight_decay()
        groups: dict[tuple[bool, bool], dict[str, Any]] = {}

        for m, member in enumerate(self.members):
            for name, parameter in member.trainable_tensors().items():
                is_head = name.startswith("head.")
                decays = parameter.ndim > 1 and f"members.{m}.{name}" not in vectors

                group = groups.setdefault((is_head, decays), {"params": []})
                group["params"].append(parameter)
                group["lr"] = head_lr if is_head else lr
                if not decays:
                    group["weight_decay"] = 0.0
        return list(groups.values())

    def gradient_checkpointing_enable(
        self, gradient_checkpointing_kwargs: dict | None = None, **options: Any
    ) -> None:
        """Recompute each layer's activations in the backward pass, which saves their memory.

        Args:
            gradient_checkpointing_kwargs: As transformers' Trainer gives them.
            **options: Others of its options. timm's encoders ignore them all, and recompute every
                layer.
        """
        encoder = cast(Any, self.backbone)
        if hasattr(encoder, "set_grad_checkpointing"):
            encoder.set_grad_checkpointing()
        else:
            kwargs = gradient_checkpointing_kwargs or {"use_reentrant": False}
            encoder.gradient_checkpointing_enable(kwargs, **options)

    def set_checkpointing_mode(self) -> None:
        """Set the mode of transformers' layers, which checkpoint in training mode alone."""
        for layer in self.encoder_layers:
            if getattr(layer.block, "gradient_checkpointing", False):
                layer.block.training = self.training
