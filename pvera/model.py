"""`adapt`: a frozen transformer encoder with trainable adapters and head, or a grid of them side by side."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from pvera.adapters import Adapter, Method
from pvera.adapters.base import SITES
from pvera.adapters.bottleneck import linear
from pvera.encoders import encoder_layers, pooled, reads_class_token_only
from pvera.errors import InputError
from pvera.hooks import attach, fold
from pvera.recompute import Passes
from pvera.seeding import derive


def adapt(
    vit: nn.Module,
    method: Method | Sequence[Method],
    num_classes: int,
    seed: int | Sequence[int] = 0,
) -> "AdaptedModel":
    """Freeze `vit` and attach `method` and a linear head.

    `vit` is a timm vision transformer with fused qkv, or a bare encoder of transformers, for images or text
    (what its `AutoModel` loads; see `wiring`). The model takes images (batch, 3, height, width), or the mapping
    that a tokenizer returns: input_ids and attention_mask, each (batch, tokens), and what else it reads.

    The head reads what timm's `forward_head(..., pre_logits=True)` returns: the class token, the mean of the
    tokens, or an attention pooling, as the model was made. Of an encoder of transformers it reads the first token.

    With a sequence of methods (a grid) every member gets adapters and head of its own over the one backbone;
    `seed` is then one for all or one for each. The backbone is used, not copied: `unload` gives it back.
    Trained tensors have the backbone's precision, at least fp32. InputError for a backbone that cannot be adapted
    and for arguments out of range.
    """
    return AdaptedModel(vit, method, num_classes, seed)


class Member(nn.Module):
    """Everything that one member of the grid trains: an adapter per layer, and the head."""

    def __init__(self, method: Method, layers: list, num_classes: int, seed: int):
        super().__init__()
        if not isinstance(num_classes, int) or isinstance(num_classes, bool) or num_classes < 1:
            raise InputError(f"num_classes must be a positive integer, not {num_classes!r}")
        self.dim = dim = layers[0].dim
        self.method, self.seed, self.num_classes = method, seed, num_classes
        self.shared = method.shared(dim, seed)
        self.layers = nn.ModuleList(method.adapter(x, i, self.shared, seed) for i, x in enumerate(layers))
        self.head = linear(dim, num_classes, seed, "head")
        frozen = layers[0].projections[0][0].weight
        self.to(frozen.device, torch.promote_types(frozen.dtype, torch.float32))

    def trained(self) -> dict[str, nn.Parameter]:
        """The trainable tensors by name: what is saved."""
        return {n: p for n, p in self.named_parameters() if p.requires_grad}

    def count(self) -> dict[str, int]:
        """How many numbers are trained, in the adapters and in the head."""
        total = sum(p.numel() for p in self.trained().values())
        head = sum(p.numel() for p in self.head.parameters())
        return {"adapter": total - head, "head": head}


class AdaptedModel(nn.Module):
    """See `adapt`. Only adapters and heads are trainable; the backbone stays in evaluation mode, so its
    dropout and stochastic depth are off.

    members: the grid.   active: indices of the members that a forward pass computes; all at first.
    last_mlp_on_class_token: a head that reads the class token needs the last MLP there only. On, this spares
        it the other tokens (a sixth of the work of four layers); equal up to the rounding of the products. It has
        no effect on a backbone whose features depend on the other tokens, and on a merged model.
    """

    last_mlp_on_class_token = False

    def __init__(self, vit: nn.Module, method: Method | Sequence[Method], num_classes: int, seed):
        super().__init__()
        if getattr(vit, "_adapted", False):
            raise InputError("this backbone has adapters already; call unload() on the adapted model first")
        self.single = isinstance(method, Method)
        methods, seeds = _grid(method, seed)
        self._layers = encoder_layers(vit)
        self.members = nn.ModuleList(
            Member(m, self._layers, num_classes, s) for m, s in zip(methods, seeds, strict=True)
        )
        if len({frozenset(_sites(member.layers[0])) for member in self.members}) > 1:
            raise InputError("the members of a grid must adapt the same places of the layer")
        self.backbone = vit.requires_grad_(False)
        self.active = list(range(len(methods)))
        self._merged: list[int] | None = None  # what was active when merged
        self._replaced: list[tuple[nn.Parameter, Tensor]] = []
        self._handles: list = []
        self._passes = [Passes() for _ in self._layers]
        self._class_token: bool | None = None  # whether the head reads nothing else; None: not verified yet
        self._sparing = False
        self._lock = threading.RLock()
        self._attach()
        vit._adapted = True
        self.train()

    def __copy__(self):
        raise TypeError("a shallow copy would share its adapters' state: use copy.deepcopy()")

    def __getstate__(self) -> dict:
        return {name: value for name, value in super().__getstate__().items() if name != "_lock"}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._lock = threading.RLock()

    def forward(self, inputs: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Logits (batch, classes) of images or text (see `adapt`); (members, batch, classes) of a grid."""
        return self.classify(self.features(inputs))

    def features(self, inputs: Tensor | Mapping[str, Tensor]) -> Tensor:
        """What the heads read (see `adapt`), (active members, batch, dim); one for all where nothing adapts.

        RuntimeError if merged while another member was active. InputError for inputs that are neither.
        """
        _check(inputs)
        with self._lock:
            if self.merged and self.active != self._merged:
                raise RuntimeError(f"member {self._merged[0]} is merged: call unmerge_() to compute another one")
            if not isinstance(inputs, Tensor):
                return self._text_features(inputs)
            members = len(self.active) if self._adapts else 1
            if self.last_mlp_on_class_token and self._class_token is None:
                self._class_token = self._reads_class_token_only(inputs[:1])
            self._sparing = self.last_mlp_on_class_token and self._class_token
            try:
                output = self.backbone(inputs.repeat(members, 1, 1, 1) if members > 1 else inputs)
            finally:
                self._sparing = False
            return pooled(output).unflatten(0, (members, -1))

    def _text_features(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """One pass per member: DeBERTa's position embeddings have no batch that could be repeated."""
        active, mask = self.active, inputs.get("attention_mask")
        adapters = [a for m in active for a in self.members[m].layers if hasattr(a, "tokens")]
        features = []
        try:
            for adapter in adapters:
                adapter.tokens = None if mask is None else mask.bool()
            for member in active if self._adapts else active[:1]:
                self.active = [member]
                features.append(pooled(self.backbone(**inputs)))
        finally:
            self.active = active
            for adapter in adapters:
                adapter.tokens = None
        return torch.stack(features)

    def classify(self, features: Tensor) -> Tensor:
        """The heads' logits of `features`."""
        features = features.expand(len(self.active), -1, -1)
        heads = [self.members[m].head for m in self.active]
        logits = torch.stack([head(f.to(head.weight.dtype)) for head, f in zip(heads, features, strict=True)])
        return logits[0] if self.single else logits

    def kl_divergence(self) -> Tensor:
        """KL term (the sum of Eq. 8) of the last forward pass, in fp32: a scalar, or one per active member.

        Zero for methods that have none. β is the caller's. RuntimeError once merged: the variance is gone.
        """
        if self.merged:
            raise RuntimeError("a merged model has no KL term: call unmerge_() first")
        device = self.members[0].head.weight.device
        terms = [
            torch.as_tensor(sum(a.kl_divergence() for a in self.members[m].layers), device=device) for m in self.active
        ]
        return terms[0] if self.single else torch.stack(terms)

    def train(self, mode: bool = True) -> "AdaptedModel":
        """Adapters and heads follow `mode`; the backbone never leaves evaluation mode."""
        if mode and self.merged:
            raise RuntimeError("a merged model cannot be trained: call unmerge_() first")
        super().train(mode)
        self.backbone.eval()
        return self

    def merge_(self) -> "AdaptedModel":
        """Fold the adapters (PVeRA's mean, Eq. 10) into the frozen weights: no cost at inference.

        Takes a single member of VeRA, PVeRA, LoRA, DoRA or (IA)³ (or linear probing, where nothing is to
        do); InputError for the others. The original weights are kept: `unmerge_` restores them bit for bit, and
        `state_dict` holds them, so that it means the same merged or not. `backbone.state_dict()` is merged.
        """
        if len(self.active) != 1:
            raise InputError("only one member can be merged: set `active` to it first")
        with self._lock:
            if self.merged:
                return self
            member = self.members[self.active[0]]
            if not all(adapter.foldable for adapter in member.layers):
                raise InputError(f"{member.method.title} is not linear and cannot be merged")
            self._detach()
            for layer, adapter in zip(self._layers, member.layers, strict=True):
                self._replaced += fold(layer, adapter)
            self._merged = list(self.active)
            return self.eval()

    def unmerge_(self) -> "AdaptedModel":
        """Undo `merge_`."""
        with self._lock:
            if self.merged:
                _restore(self._replaced)
                self._replaced, self._merged = [], None
                self._attach()
            return self

    def state_dict(self, *args, prefix: str = "", **options) -> dict[str, Tensor]:
        """As of any module, with the frozen weights as they are when nothing is merged."""
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
        """Remove the adapters and return the plain backbone, frozen, with its original weights."""
        self.unmerge_()
        self._detach()
        self.backbone._adapted = False
        return self.backbone

    @contextmanager
    def sampling(self, seed: int | None = None, enabled: bool = True) -> Iterator[None]:
        """Inside, forward passes draw z whether training or not (or, with `enabled` off, take the mean).

        With `seed` the draws follow from it and the training noise goes on undisturbed afterwards.
        InputError for methods without a distribution, RuntimeError for a merged model.
        """
        if self.merged:
            raise RuntimeError("a merged model holds only the mean and cannot sample: call unmerge_() first")
        adapters = [(m, i, a) for m in self.active for i, a in enumerate(self.members[m].layers)]
        if not all(hasattr(a, "sampling") for _, _, a in adapters):
            raise InputError(f"{self.members[self.active[0]].method.title} has no distribution to sample from")
        with self._lock:
            before = [(a.sampling, a._noise_seed, a._generator) for _, _, a in adapters]
            for m, i, adapter in adapters:
                adapter.sampling = enabled
                if seed is not None:
                    adapter.seed_noise(derive(seed, "sample", self.members[m].seed, i))
            try:
                yield
            finally:
                for (_, _, adapter), (mode, noise_seed, source) in zip(adapters, before, strict=True):
                    adapter.sampling = mode
                    if seed is not None:
                        adapter._noise_seed, adapter._generator = noise_seed, source

    @contextmanager
    def mean_in_weights(self) -> Iterator[None]:
        """Inside, where `sampling`, the one active member's mean is folded into the frozen weights, and its
        adapters compute only what is drawn around it: half of A less. Equal up to the rounding of the merge."""
        (member,) = (self.members[m] for m in self.active)
        pairs = zip(self._layers, member.layers, strict=True)
        with self._lock:
            replaced = [old for layer, adapter in pairs for old in fold(layer, adapter)]
            try:
                for adapter in member.layers:
                    adapter.mean_in_weights = True
                yield
            finally:
                for adapter in member.layers:
                    adapter.mean_in_weights = False
                _restore(replaced)

    @contextmanager
    def without_kl(self) -> Iterator[None]:
        """Inside, the KL term is not computed: a pass that takes the mean then needs half of A only."""
        adapters = [a for member in self.members for a in member.layers if hasattr(a, "with_kl")]
        with self._lock:
            before = [adapter.with_kl for adapter in adapters]
            for adapter in adapters:
                adapter.with_kl = False
            try:
                yield
            finally:
                for adapter, with_kl in zip(adapters, before, strict=True):
                    adapter.with_kl = with_kl

    @property
    def _adapts(self) -> bool:
        """Whether the members change what the backbone computes."""
        return not self.merged and bool(_sites(self.members[0].layers[0]))

    def _attach(self) -> None:
        for i, layer in enumerate(self._layers):
            self._handles.append(layer.layer.register_forward_pre_hook(partial(self._begin, i)))
            self._handles += attach(layer, _sites(self.members[0].layers[i]), partial(self._call, i))
        last = self._layers[-1].mlp_norm
        if last is not None:
            self._handles.append(last.register_forward_pre_hook(self._spare_tokens, prepend=True))

    def _detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _reads_class_token_only(self, image: Tensor) -> bool:
        """`reads_class_token_only`, with the mean of one member, which draws no noise."""
        active, self.active = self.active, self.active[:1]
        samples = all(hasattr(adapter, "sampling") for adapter in self.members[self.active[0]].layers)
        try:
            with self.without_kl(), self.sampling(enabled=False) if samples else nullcontext():
                return reads_class_token_only(self.backbone, self._layers[-1], image)
        finally:
            self.active = active

    def _begin(self, index: int, layer, args) -> None:
        self._passes[index].begin()
        for member in self.members:
            member.layers[index].passes.begin()

    def _spare_tokens(self, norm, args):
        """Give the last MLP the class token alone. Its output then adds to every token, of which no other is read."""
        return args[0][:, :1] if self._passes[-1]("sparing", lambda: self._sparing) else None

    def _call(self, index: int, site: str, *tensors: Tensor, **kwargs) -> Tensor:
        """Give each active member its part of the batch."""
        active = self._passes[index]("active", lambda: list(self.active))
        adapters = [self.members[m].layers[index] for m in active]
        if len(adapters) == 1:
            return getattr(adapters[0], site)(*tensors, **kwargs)
        parts = zip(*(tensor.chunk(len(adapters)) for tensor in tensors), strict=True)
        return torch.cat([getattr(a, site)(*part, **kwargs) for a, part in zip(adapters, parts, strict=True)])


def _grid(method: Method | Sequence[Method], seed: int | Sequence[int]) -> tuple[list[Method], list[int]]:
    """The members' methods and seeds. InputError unless there are as many of both."""
    methods = [method] if isinstance(method, Method) else list(method)
    seeds = list(seed) if isinstance(seed, Sequence) and not isinstance(seed, str) else [seed] * len(methods)
    if not methods or len(seeds) != len(methods) or not all(isinstance(m, Method) for m in methods):
        raise InputError("adapt() takes one method, or a non-empty sequence of methods and as many seeds")
    for value in seeds:
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"seed must be a whole number, or one for each member, not {value!r}")
    return methods, seeds


def _check(inputs) -> None:
    """InputError unless `inputs` are a batch of images or of texts."""
    if isinstance(inputs, Mapping):
        if not inputs or not all(isinstance(t, Tensor) and len(t) for t in inputs.values()):
            raise InputError(
                "texts are a mapping of tensors (batch, tokens) of at least one text, as a tokenizer "
                "returns with return_tensors='pt'"
            )
    elif not isinstance(inputs, Tensor):
        raise InputError(f"the model takes a tensor of images or a tokenizer's mapping, not {type(inputs).__name__}")
    elif inputs.ndim != 4 or not len(inputs) or not inputs.is_floating_point():
        raise InputError(
            "images are a floating-point tensor (batch, 3, height, width) of at least one image, not "
            f"{inputs.dtype} of shape {tuple(inputs.shape)}"
        )


@torch.no_grad()
def _restore(replaced: list[tuple[nn.Parameter, Tensor]]) -> None:
    for parameter, old in replaced:
        parameter.copy_(old)


def _sites(adapter: Adapter) -> set[str]:
    return {site for site in SITES if hasattr(adapter, site)}
