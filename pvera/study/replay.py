"""Training steps on a GPU, recorded as CUDA graphs and replayed."""

import torch
from torch import Tensor

from pvera.model import AdaptedModel
from pvera.study.optimization import Step


class Replay:
    """A step of `fit` on a GPU, recorded as a CUDA graph for each set of active members.

    A step launches thousands of kernels, which on small backbones takes longer than they do. The
    replayed kernels are the recorded ones, and the numbers the same. A batch of another size than
    `batch_size` is computed without a graph.

    β of each member is recorded with the step, so a replay does not read `betas`: they belong to
    the members and change with these alone. The returned tensor is the graph's; the next step
    overwrites it.
    """

    def __init__(self, take_step: Step, model: AdaptedModel, batch_size: int, device: torch.device):
        self.take_step = take_step
        self.model = model
        self.batch_size = batch_size
        self.stream = torch.cuda.Stream(device)
        #: The active members whose step is recorded.
        self.active: list[int] = []
        self.graph: torch.cuda.CUDAGraph | None = None
        #: What the graph reads and writes, once it is recorded.
        self.inputs: Tensor
        self.labels: Tensor
        self.losses: Tensor

    def __call__(self, inputs: Tensor, labels: Tensor, betas: list[float]) -> Tensor:
        """Take a step; see `step`."""
        if len(labels) != self.batch_size:
            return self.take_step(inputs, labels, betas)
        if self.active != self.model.active:
            self.active = list(self.model.active)
            self.graph = None
            return self._first(inputs, labels, betas)

        if self.graph is None:
            self.graph = self._record(inputs, labels, betas)
        self.inputs.copy_(inputs)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.losses

    def _first(self, inputs: Tensor, labels: Tensor, betas: list[float]) -> Tensor:
        """Compute a step on the stream that records: it makes generators and optimizer states."""
        outside = torch.cuda.current_stream(self.stream.device)
        self.stream.wait_stream(outside)
        with torch.cuda.stream(self.stream):
            losses = self.take_step(inputs, labels, betas)
        outside.wait_stream(self.stream)
        return losses

    def _record(self, inputs: Tensor, labels: Tensor, betas: list[float]) -> torch.cuda.CUDAGraph:
        """Record a step on tensors that later batches are copied to; it is not computed yet."""
        graph = torch.cuda.CUDAGraph()
        self.inputs = inputs.clone()
        self.labels = labels.clone()
        for m in self.active:
            for adapter in self.model.members[m].stochastic_adapters:
                graph.register_generator_state(adapter.source.generator(labels.device))
        with torch.cuda.graph(graph, stream=self.stream):
            self.losses = self.take_step(self.inputs, self.labels, betas)
        return graph
