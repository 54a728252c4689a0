"""`adapt`: a frozen transformer encoder with trainable adapters and head, or with a grid of them, its members."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from pvera.adapters import Adapter, Method
from pvera.adapters.base import derive, fixed_defaults, full_precision, linear, require_finite
from pvera.adapters.pvera import total_loss
from pvera.adapters.stochastic import Passes, Source, with_settings
from pvera.encoders import (
    POOLS,
    EncoderLayer,
    encode_images,
    encoder_layers,
    input_shape,
    not_plain,
    pooled,
    reads_text,
    require_inputs,
    require_numbers,
    uncompiled,
)
from pvera.errors import InputError
from pvera.hooks import Handle, Replaced, attach, merge, require_residual_layers


def adapt(
    encoder: nn.Module,
    method: Method | Sequence[Method],
    num_classes: int,
    seed: int | Sequence[int] = 0,
    pool: str = "first",
) -> "AdaptedModel":
    """Freeze `encoder`, attach `method` and a linear head, and return the adapted model.

    encoder: a timm vision transformer, or a bare encoder of transformers for images or text; docs/backbones.md lists
        both. It is used, not copied: `unload` gives it back.
    method: one method, or a sequence of them (a grid). Each member of a grid has adapters and a head of its own over
        the one backbone.
    num_classes: 0 for the features in place of logits; a head of one's own can then replace `members[0].head`.
    seed: one for all members, or one for each.
    pool: the features of a text: "first" token, or "mean" of all tokens but padding.

    The model takes images (batch, 3, height, width), or the mapping that a tokenizer returns: input_ids and
    attention_mask, each (batch, tokens), and the encoder's other inputs. docs/backbones.md says what the head reads.
    Trained tensors have the backbone's precision, at least fp32.

    InputError for a backbone that cannot be adapted and for arguments out of range.
    """
    return AdaptedModel(encoder, method, num_classes, seed, pool)


class AdaptedModel(nn.Module):
    """A frozen encoder with adapters and heads, as `adapt` makes it.

    Only adapters and heads are trainable. The backbone stays in evaluation mode, without dropout and stochastic depth.
    As a context, the model is unloaded at the end. Several threads may predict images at a time; merging, drawing or
    saving while others predict is not supported.

    members: the grid.   active: indices of the members that a forward pass computes; all at first.
    last_mlp_on_class_token: whether the last MLP computes the class token alone, which on four layers saves a sixth of
        all multiply-adds. Logits are equal up to rounding; the backbone's other tokens lack that MLP. It has no effect
        where the features depend on other tokens, or while the model is merged.
    beta: weight of the KL term in the loss of `forward(labels=...)`.
    """

    last_mlp_on_class_token = False
    beta = 0.0
    members: Sequence["Member"]
    backbone: nn.Module

    def __init__(
        self,
        encoder: nn.Module,
        method: Method | Sequence[Method],
        num_classes: int,
        seed: int | Sequence[int] = 0,
        pool: str = "first",
        shapes_only: bool = False,
    ):
        """Adapt `encoder` (see `adapt`); with `shapes_only` its weights may lie on the meta device."""
        super().__init__()
        if pool not in POOLS or (pool != "first" and not reads_text(encoder)):
            raise InputError(
                f"pool must be one of {', '.join(POOLS)}, not {pool!r}; of images, the backbone pools"
            )
        require_plain(encoder)
        self.single = isinstance(method, Method)
        methods, seeds = grid(method, seed)
        self._layers = encoder_layers(encoder)
        input_shape(encoder)  # `save` needs it: fail before a training
        if not shapes_only:
            require_numbers(encoder)
        require_residual_layers(encoder, self._layers)
        members = [
            Member(m, self._layers, num_classes, s) for m, s in zip(methods, seeds, strict=True)
        ]
        self.members = cast(Sequence[Member], nn.ModuleList(members))
        if len({tuple(frozenset(a.sites) for a in member.layers) for member in self.members}) > 1:
            raise InputError("the members of a grid must adapt the same places of each layer")
        self.backbone = encoder.requires_grad_(False)
        self.pool = pool
        self.active = list(range(len(methods)))
        self._merged: list[int] | None = None  # the members that were active when merged
        self._replaced: Replaced = []
        self._handles: list[Handle] = []  # of the hooks; none once the model is unloaded
        self._passes = [Passes() for _ in self._layers]
        for member in members:
            for adapter, passes in zip(member.layers, self._passes, strict=True):
                adapter.passes = passes
        self._attach()
        encoder._adapted = cast(
            Any, True
        )  # modules take any attribute; their annotation knows tensors and modules
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
        """Return logits (batch, classes) of images or text (see `adapt`); (members, batch, classes) of a grid.

        Inputs may have transformers' names instead. With `labels` (batch), or (batch, classes) of probabilities, it
        returns loss and logits: the cross entropy, to which training adds `beta` times the KL term (Eq. 8). A pass
        with `labels` whose loss has no KL term computes none.
        """
        if inputs is None:
            text = {
                "input_ids": input_ids,
                "attention_mask": attention_mask,
                "token_type_ids": token_type_ids,
            }
            given = {name: tensor for name, tensor in text.items() if tensor is not None}
            inputs = given if pixel_values is None else pixel_values
        with_kl = self.training and self.beta
        with (
            nullcontext()
            if labels is None or with_kl or torch.compiler.is_compiling()
            else self.without_kl()
        ):
            logits = self.classify(self.features(inputs))
        if labels is None:
            return logits
        if not self.single:
            raise InputError("labels= gives one loss: compute those of a grid from its logits")
        loss = nn.functional.cross_entropy(full_precision(logits), labels)
        if with_kl:
            loss = total_loss(loss, self.kl_divergence(), self.beta)
        return Output(loss, logits)

    def features(self, inputs: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Return the heads' input (active members, batch, dim); (1, batch, dim) where no adapter changes the backbone.

        RuntimeError if another member was merged. InputError unless `inputs` are images or text (see `adapt`).
        """
        require_inputs(inputs, self.backbone)
        self._require_backbone()
        if self._merged is not None and self.active != self._merged:
            raise RuntimeError(
                f"member {self._merged[0]} is merged: call unmerge_() to compute another one"
            )
        self._require_layers()
        adapts = not self.merged and any(adapter.sites for adapter in self.members[0].layers)
        active = (
            self.active if adapts else self.active[:1]
        )  # one pass where no adapter changes the backbone
        if not isinstance(inputs, Tensor):
            return self._text_features(inputs, active)
        images = inputs.repeat(len(active), 1, 1, 1) if len(active) > 1 else inputs
        return encode_images(self.backbone, images).unflatten(0, (len(active), -1))

    def _text_features(self, inputs: Mapping[str, Tensor], members: list[int]) -> Tensor:
        """Make one pass per member: DeBERTa's position embeddings have no batch that could be repeated."""
        active, mask = self.active, inputs.get("attention_mask")
        tokens = None if mask is None else mask.bool()
        if (
            tokens is not None
            and not (tokens[:, 0] if self.pool == "first" else tokens.any(1)).all()
        ):
            raise InputError(
                "padding comes first, or alone, in a text: pad on the right (tokenizer.padding_side)"
            )
        features = []
        with with_settings(self._stochastic(active), tokens=tokens):
            try:
                for member in members:
                    self.active = [member]
                    features.append(
                        pooled(self.backbone, self.backbone(**inputs), self.pool, tokens)
                    )
            finally:
                self.active = active
        return torch.stack(features)

    def classify(self, features: Tensor) -> Tensor:
        """Return the heads' logits for `features`."""
        features = features.expand(len(self.active), -1, -1)
        logits = torch.stack(
            [self.members[m].classify(f) for m, f in zip(self.active, features, strict=True)]
        )
        return logits[0] if self.single else logits

    def kl_divergence(self) -> Tensor:
        """Return Σ_layers L_KL (Eq. 8, without β) of the last forward pass, in fp32: a scalar; for a grid (members,).

        Zero for methods without a KL term. RuntimeError for a merged model, which has no variance.
        """
        self._require_backbone()
        if self.merged:
            raise RuntimeError("a merged model has no KL term: call unmerge_() first")
        device = self._layers[0].projections[0][0].weight.device
        terms = [
            torch.as_tensor(self.members[m].kl_divergence(), device=device) for m in self.active
        ]
        return terms[0] if self.single else torch.stack(terms)

    def train(self, mode: bool = True) -> "AdaptedModel":
        """Set the mode of adapters and heads; the backbone stays in evaluation mode."""
        if mode and self.merged:
            raise RuntimeError("a merged model cannot be trained: call unmerge_() first")
        super().train(mode)
        self.backbone.eval()
        return self

    def merge_(self) -> "AdaptedModel":
        """Merge the adapters (PVeRA's mean, Eq. 10) into the frozen weights: inference then costs nothing more.

        Takes one active member of VeRA, PVeRA, LoRA, DoRA, (IA)³ or linear probing; InputError for others. `unmerge_`
        restores the original weights bit for bit. `state_dict` holds the original weights, merged or not, and
        `backbone.state_dict()` the merged ones; both share memory with the model.
        """
        member = self.only_member("merged")
        self._require_backbone()
        if self.merged:
            return self
        if not member.mergeable:
            raise InputError(f"{member.method.title} is not linear and cannot be merged")
        pairs = list(zip(self._layers, member.layers, strict=True))
        linears = [linear for layer, adapter in pairs if adapter.sites for linear in layer.linears]
        if why := next(filter(None, map(not_plain, linears)), ""):
            raise InputError(
                f"this backbone cannot be merged: {why}, not the numbers of an nn.Linear"
            )
        require_finite(member.trained(), "merge_()")
        try:
            for layer, adapter in pairs:
                merge(layer, adapter, self._replaced)
            self._require_own_weights()
        except BaseException:  # such as a GPU without memory for the originals
            self.unmerge_()
            raise
        self._merged = list(self.active)
        return self.eval()

    def unmerge_(self) -> "AdaptedModel":
        """Undo `merge_`."""
        with torch.no_grad():
            for parameter, old in reversed(
                self._replaced
            ):  # one that was replaced twice: its first value
                parameter.copy_(old)
        self._replaced, self._merged = [], None
        return self

    def _require_own_weights(self) -> None:
        """Raise InputError where another module shares a replaced parameter: it has another adapter."""
        names: dict[int, list[str]] = {}
        for name, parameter in self.backbone.named_parameters(remove_duplicate=False):
            names.setdefault(_address(parameter), []).append(name)
        for replaced, _ in self._replaced:
            shared = names.get(_address(replaced), [])
            if len(shared) > 1:
                raise InputError(
                    f"this backbone cannot be merged: {' and '.join(shared)} share their numbers, and one "
                    "adapter would change them all"
                )

    @contextmanager
    def inference(self) -> Iterator["AdaptedModel"]:
        """Predict inside at the least cost: in evaluation mode, merged where that is possible, without gradients and
        KL term. Afterwards, weights and mode are as before.
        """
        mode, merged = self.training, self.merged
        try:
            self.eval()
            with suppress(InputError):
                self.merge_()
            with self.without_kl(), torch.inference_mode():
                yield self
        finally:
            if not merged:
                self.unmerge_()
            self.train(mode)

    def only_member(self, done: str) -> "Member":
        """Return the one active member. InputError where there are several, of which one alone can be `done`."""
        if len(self.active) != 1:
            raise InputError(f"only one member can be {done}: set `active` to it first")
        return self.members[self.active[0]]

    def seed_noise(self, seed: int) -> "AdaptedModel":
        """Let the training noise go on from `seed`, on each rank of torch.distributed with draws of its own."""
        for member in self.members:
            member.seed_noise(seed, on_all_ranks=False)
        return self

    def gradient_checkpointing_enable(
        self, gradient_checkpointing_kwargs: dict | None = None, **options: Any
    ) -> None:
        """Compute each layer's activations again in the backward pass, which saves their memory.

        Takes what transformers' Trainer gives, such as `every_n_layers`. InputError for values that timm's encoders,
        which have no such options, do not follow.
        """
        encoder, kwargs = cast(Any, self.backbone), gradient_checkpointing_kwargs or {}
        if hasattr(encoder, "set_grad_checkpointing"):
            fixed = {"use_reentrant": False, "every_n_layers": 1, "offload": False}
            for name, value in (kwargs | options).items():
                if fixed.get(name) != value:
                    raise InputError(
                        f"timm's encoders checkpoint every layer, without options: leave out {name}={value!r}"
                    )
            encoder.set_grad_checkpointing()
        elif hasattr(encoder, "gradient_checkpointing_enable"):
            encoder.gradient_checkpointing_enable(kwargs or {"use_reentrant": False}, **options)
        else:
            raise InputError(
                f"{type(encoder).__name__} has no method set_grad_checkpointing, as timm's encoders have"
            )

    @property
    def pretrained_cfg(self) -> Any:
        """The backbone's configuration, for `timm.data.resolve_model_data_config`: size and normalisation of images."""
        published: Any = self.backbone.pretrained_cfg
        return published | {
            "input_size": input_shape(self.backbone)
        }  # made with img_size= it has another

    def no_weight_decay(self) -> set[str]:
        """Return the names of the adapters' vectors, which timm's optimizers then do not decay.

        Each also as timm's pattern for any prefix, as of a compiled model.
        """
        names = {
            f"members.{m}.layers.{i}.{name}"
            for m, member in enumerate(self.members)
            for i, adapter in enumerate(member.layers)
            for name in adapter.vectors
        }
        return names | {f"*.{name}" for name in names}

    def parameter_groups(self, lr: float, head_lr: float | None = None) -> list[dict[str, Any]]:
        """Return what all members train, in groups for an optimizer of torch or timm.

        The groups of the adapters' vectors (`no_weight_decay`) and of one-dimensional tensors, such as biases, have a
        weight decay of zero. The others take the optimizer's. Wrappers such as DDP leave the parameters the same.

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
            for name, parameter in member.trained().items():
                is_head = name.startswith("head.")
                decays = parameter.ndim > 1 and f"members.{m}.{name}" not in vectors

                group = groups.setdefault((is_head, decays), {"params": []})
                group["params"].append(parameter)
                group["lr"] = head_lr if is_head else lr
                if not decays:
                    group["weight_decay"] = 0.0
        return list(groups.values())

    def state_dict(self, *args: Any, prefix: str = "", **options: Any) -> Any:
        """Return the state as any module does, with the original frozen weights even while merged."""
        state = super().state_dict(*args, prefix=prefix, **options)
        names = {id(p): n for n, p in self.named_parameters()}
        state.update({prefix + names[id(p)]: old for p, old in self._replaced})
        return state

    def _load_from_state_dict(self, *args) -> None:
        if self.merged:
            raise RuntimeError("a merged model takes no state: call unmerge_() first")
        super()._load_from_state_dict(*args)

    @property
    def merged(self) -> bool:
        return self._merged is not None

    def unload(self) -> nn.Module:
        """Remove the adapters and return the plain backbone, frozen, with its original weights.

        The model computes nothing afterwards: RuntimeError. Its adapters can still be saved.
        """
        if self._handles:
            self.unmerge_()
            for undo in self._handles:
                undo()
            self._handles = []
            self.backbone._adapted = cast(Any, False)
        return self.backbone

    @contextmanager
    def frozen(self) -> Iterator[nn.Module]:
        """Give the backbone, which computes inside as it did before `adapt`, without adapters and merge.

        InputError where the model was unloaded, and another one has adapted the backbone.
        """
        if not self._handles:
            require_plain(self.backbone)
        active, merged = self.active, self._merged
        try:
            self.unmerge_()
            self.active = []
            yield self.backbone
        finally:
            if merged is not None:
                self.active = merged
                self.merge_()
            self.active = active

    def __enter__(self) -> "AdaptedModel":
        return self

    def __exit__(self, *_) -> None:
        self.unload()

    def _require_backbone(self) -> None:
        if not self._handles:
            raise RuntimeError("this model was unloaded: adapt the backbone again")

    @contextmanager
    def sampling(self, seed: int | None = None, enabled: bool = True) -> Iterator[None]:
        """Draw z in forward passes inside, in any mode; with `enabled` off, take the mean.

        seed: the draws follow from it, and the training noise goes on undisturbed afterwards; None: the training noise.
        InputError for methods without a distribution, RuntimeError for a merged model.
        """
        self._require_backbone()
        if self.merged:
            raise RuntimeError(
                "a merged model holds only the mean and cannot sample: call unmerge_() first"
            )
        members = [self.members[m] for m in self.active]
        for member in members:
            if not member.is_stochastic:
                raise InputError(f"{member.method.title} has no distribution to sample from")
        settings = {"sampling": enabled} if seed is None else {"sampling": enabled, "source": None}
        with with_settings(self._stochastic(self.active), **settings):
            if seed is not None:
                for member in members:
                    member.seed_noise(seed)
            yield

    @contextmanager
    def without_kl(self, members: Iterable[int] | None = None) -> Iterator[None]:
        """Leave out the KL term inside, of all members or of these: a pass with z = μ then needs half of A."""
        with with_settings(
            self._stochastic(range(len(self.members)) if members is None else members),
            with_kl=False,
        ):
            yield

    def _stochastic(self, members: Iterable[int]) -> list[Any]:
        return [adapter for m in members for adapter in self.members[m].stochastic_layers]

    def _require_layers(self) -> None:
        """Raise InputError where a hooked layer was replaced, and so has lost its adapter.

        Also let transformers' layers checkpoint, which they do in training mode alone.
        """
        if torch.compiler.is_compiling():
            return
        for children, name, module in self._hooked:
            if (child := children[name]) is not module and getattr(
                child, "_orig_mod", None
            ) is not module:
                raise InputError(
                    f"{name} was replaced after adapt(), and so has no adapter: replace it before"
                )
        for layer in self._layers:
            if vars(layer.layer).get("gradient_checkpointing"):
                layer.layer.training = self.training

    def _attach(self) -> None:
        linears = {id(linear) for layer in self._layers for linear in layer.linears}
        self._hooked = [
            (parent._modules, name, child)
            for parent in self.backbone.modules()
            for name, child in parent.named_children()
            if id(child) in linears
        ]
        for i, layer in enumerate(self._layers):
            self._handles.append(
                layer.layer.register_forward_pre_hook(self._passes[i].begin).remove
            )
            self._handles += attach(layer, self.members[0].layers[i].sites, partial(self._call, i))
        last, encoder = self._layers[-1].mlp_norm, uncompiled(self.backbone)
        # A plain ViT that takes its class token reads nothing else of the last layer.
        if (
            last is not None
            and type(encoder).__name__ == "VisionTransformer"
            and getattr(encoder, "global_pool", None) == "token"
        ):
            self._handles.append(
                last.register_forward_pre_hook(self._spare_tokens, prepend=True).remove
            )

    def _spare_tokens(self, norm, args):
        """Give the last MLP the class token alone. Its output is added to every token; the head reads the first."""
        return args[0][:, :1] if self.last_mlp_on_class_token and not self.merged else None

    def _call(
        self, index: int, site: str, *tensors: Tensor, projections: str | None = None
    ) -> Tensor:
        """Give each active member its part of the batch; while merged, the layer computes all by itself."""
        if self.merged:  # asked in every hook: torch.compile sees what a hook reads, and not whether there is one
            return tensors[-1]
        active = self._passes[index]("active", lambda: list(self.active))
        adapters = [self.members[m].layers[index] for m in active]
        if not adapters:
            return tensors[-1]
        names = () if projections is None else (projections,)
        if len(adapters) == 1:
            return getattr(adapters[0], site)(*tensors, *names)
        parts = zip(*(tensor.chunk(len(adapters)) for tensor in tensors), strict=True)
        return torch.cat(
            [getattr(a, site)(*part, *names) for a, part in zip(adapters, parts, strict=True)]
        )


class Member(nn.Module):
    """One member of a grid: a method's adapter for each layer, and a linear head."""

    layers: Sequence[Adapter]

    @fixed_defaults()
    def __init__(self, method: Method, layers: Sequence[EncoderLayer], num_classes: int, seed: int):
        super().__init__()
        if type(num_classes) is not int or num_classes < 0:
            raise InputError(f"num_classes must be a whole number from 0, not {num_classes!r}")
        self.dim = dim = layers[0].dim
        self.method, self.seed, self.num_classes = method, seed, num_classes
        self.shared = method.shared(dim, seed)
        adapters = [method.adapter(layer, i, self.shared, seed) for i, layer in enumerate(layers)]
        for adapter in adapters:  # they refer to the shared module, which is registered here alone
            for name in [name for name, child in adapter._modules.items() if child is self.shared]:
                object.__setattr__(adapter, name, adapter._modules.pop(name))
        self.layers = cast(Sequence[Adapter], nn.ModuleList(adapters))
        self.head = linear(dim, num_classes, seed, "head") if num_classes else nn.Identity()
        frozen = layers[0].projections[0][0].weight
        self.to(frozen.device, torch.promote_types(frozen.dtype, torch.float32))
        self._trainable = {
            name for name, parameter in self.named_parameters() if parameter.requires_grad
        }

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the trainable tensors by name, also while they are frozen; a saved adapter holds these."""
        return {
            n: p
            for n, p in self.named_parameters()
            if n in self._trainable or n.startswith("head.")
        }

    @torch.no_grad()
    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy `tensors` into the member's parameters and buffers of these names. KeyError for an unknown name."""
        named = dict(self.named_parameters()) | dict(self.named_buffers())
        for name, tensor in tensors.items():
            named[name].copy_(tensor)

    def classify(self, features: Tensor) -> Tensor:
        """Return the head's logits of features (batch, dim)."""
        weight = next(self.head.parameters(), features)
        return self.head(features.to(weight.dtype))

    def kl_divergence(self) -> Tensor | float:
        """Return Σ_layers L_KL (Eq. 8, without β) of the last forward pass."""
        return sum(adapter.kl_divergence() for adapter in self.layers)

    def count(self) -> dict[str, int]:
        """Return the number of trained parameters in the adapters and in the head."""
        total = sum(p.numel() for p in self.trained().values())
        head = sum(p.numel() for p in self.head.parameters())
        return {"adapter": total - head, "head": head}

    @property
    def stochastic_layers(self) -> list[Any]:
        """The adapters that have a distribution, a `StochasticAdapter` each."""
        return [adapter for adapter in self.layers if adapter.is_stochastic]

    @property
    def is_stochastic(self) -> bool:
        """Whether every layer has a distribution."""
        return all(adapter.is_stochastic for adapter in self.layers)

    @property
    def mergeable(self) -> bool:
        """Whether every layer can be merged."""
        return all(adapter.mergeable for adapter in self.layers)

    def seed_noise(self, seed: int, on_all_ranks: bool = True) -> None:
        """Let the next draws of all layers follow from `seed` and the member's own."""
        for index, adapter in enumerate(self.stochastic_layers):
            adapter.source = Source(derive(seed, "sample", self.seed, index), on_all_ranks)


def _address(tensor: Tensor) -> int:
    """Return what equal views of one memory have in common; on the meta device, which has none, one tensor."""
    return tensor.data_ptr() or id(tensor)


def grid(
    method: Method | Sequence[Method], seed: int | Sequence[int]
) -> tuple[list[Method], list[int]]:
    """Return the members' methods and seeds. InputError unless there are as many of both."""
    methods = list(method) if isinstance(method, Sequence) else [method]
    seeds = list(seed) if isinstance(seed, Sequence) else [seed] * len(methods)
    if not methods or len(seeds) != len(methods) or not all(isinstance(m, Method) for m in methods):
        raise InputError(
            "adapt() takes one method, or a non-empty sequence of methods and as many seeds"
        )
    if odd := [value for value in seeds if type(value) is not int]:
        raise InputError(f"seed must be a whole number, or one for each member, not {odd[0]!r}")
    return methods, seeds


class Output(NamedTuple):
    """The mean loss of a batch, and its logits (batch, classes)."""

    loss: Tensor
    logits: Tensor


def require_plain(encoder: nn.Module) -> None:
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
