"""Pretrain the packaged small backbone by classification of CIFAR-10's training images.

    python experiments/pretrain_tiny.py --source FOLDER        # 25 minutes on one core

Writes vit_tiny_patch8_32.safetensors. The last 500 images of each class are held out: they only
give the reported accuracy, 0.7068 for the packaged weights. The same command, images and packages
give the same weights, bit for bit.
"""

import pvera  # isort: skip  # noqa: F401  before timm

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
from options import Parser
from timm.models import get_pretrained_cfg
from timm.optim import create_optimizer_v2
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torchvision.datasets import ImageFolder
from tqdm import tqdm

from pvera import backbones
from pvera.adapters.base import generator
from pvera.errors import InputError, as_input_error, run_script
from pvera.files import write_atomically

_CONFIG: Any = get_pretrained_cfg(backbones.TINY)
#: The normalisation of images in [0, 1].
MEAN = torch.tensor(_CONFIG.mean).view(3, 1, 1)
STD = torch.tensor(_CONFIG.std).view(3, 1, 1)
#: Images per class that are not trained on.
HELD_OUT = 500
SEED = 0
EPOCHS = 50
BATCH_SIZE = 256
#: Largest learning rate of AdamW.
LEARNING_RATE = 2e-3
#: Share of the steps in which the learning rate rises; half a cosine down to zero follows.
WARMUP = 3 / 50
WEIGHT_DECAY = 0.05
LABEL_SMOOTHING = 0.1
#: Smallest area of the random crop, as a share of the image.
CROP_SCALE = 0.5
#: Largest change of brightness, contrast and saturation.
JITTER = 0.3


def main() -> None:
    """Pretrain on the images of the command line, and write the weights."""
    parser = Parser(__doc__)
    text = "of 32x32 images named <class>/<number>.jpg"
    parser.add_argument("--source", type=Path, metavar="FOLDER", required=True, help=text)
    source = parser.parse_args().source
    output = Path(f"{backbones.TINY}.safetensors")
    if output.exists():
        raise InputError(f"{output} exists: remove it")
    torch.set_num_threads(1)

    images, labels = read(source)
    images_sha256 = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    model, held_out_accuracy = pretrain(images, labels)

    state = model.state_dict()
    weights = {key: value for key, value in state.items() if not key.startswith("head.")}
    metadata = {
        "images_sha256": images_sha256,
        "held_out_accuracy": str(held_out_accuracy),
    }
    write_atomically(output, safetensors.torch.save(weights, metadata))
    print(f"{output}: held-out accuracy {held_out_accuracy:.4f}")


def read(source: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read images.

    Returns:
        Images (N, 32, 32, 3) uint8 and labels (N,) int64, sorted by class and number.

    Raises:
        InputError: They cannot be read.
    """
    advice = "--source takes images named <class>/<number>.jpg"
    with as_input_error(f"{source} cannot be read", advice):
        folder = ImageFolder(source)
        folder.samples.sort(key=lambda sample: (sample[1], int(Path(sample[0]).stem)))
        bar = tqdm(folder, "decode", unit="image")
        images = np.stack([np.asarray(image) for image, _ in bar])
        return images, np.array([label for _, label in folder.samples])


def pretrain(images: np.ndarray, labels: np.ndarray) -> tuple[nn.Module, float]:
    """Train on all but the held-out images; return the model and its accuracy on those.

    Args:
        images: (N, 32, 32, 3) uint8.
        labels: (N,), sorted.
    """
    is_held_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        is_held_out[np.flatnonzero(labels == label)[-HELD_OUT:]] = True
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    targets = torch.from_numpy(labels)
    held_out = (pixels[is_held_out], targets[is_held_out])
    training = (pixels[~is_held_out], targets[~is_held_out])
    classes = int(labels[-1]) + 1

    with backbones.seeded(SEED):
        model = timm.create_model(backbones.TINY, num_classes=classes)
    # timm lets matrices alone decay.
    adamw = create_optimizer_v2(model, "adamw", LEARNING_RATE, WEIGHT_DECAY, fused=True)
    schedule = warmup_and_cosine(adamw, EPOCHS * (len(training[0]) // BATCH_SIZE))
    for epoch in range(EPOCHS):
        noise = generator(SEED, "pretrain", epoch)
        loss = train_epoch(model, adamw, schedule, *training, noise)
        held_out_accuracy = accuracy(model, *held_out)
        tqdm.write(f"epoch {epoch + 1}: loss {loss:.4f}, held-out accuracy {held_out_accuracy:.4f}")
    return model, held_out_accuracy


def warmup_and_cosine(optimizer: Optimizer, steps: int) -> LRScheduler:
    """Return a schedule of a linear warm-up, and half a cosine down to zero."""
    warmup = WARMUP * steps

    def scale(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))

    return LambdaLR(optimizer, scale)


def normalise(images: Tensor) -> Tensor:
    """Normalise images (batch, 3, 32, 32) in [0, 1] as the backbone reads them."""
    return (images - MEAN) / STD


def augment(images: Tensor, noise: torch.Generator) -> Tensor:
    """Crop, resize, flip, jitter and normalise each image at random.

    Args:
        images: (batch, 3, 32, 32) in [0, 1].
        noise: Random numbers.
    """
    images = crop_and_flip(images, noise)
    factors = uniform(1 - JITTER, 1 + JITTER, 3 * len(images), noise)
    brightness, contrast, saturation = factors.view(3, -1, 1, 1, 1)
    images = images * brightness
    # Away from or towards the mean of the image (contrast) and of each pixel (saturation).
    images = torch.lerp(images.mean((1, 2, 3), keepdim=True), images, contrast)
    images = torch.lerp(images.mean(1, keepdim=True), images, saturation)
    return normalise(images.clamp(0, 1))


def crop_and_flip(images: Tensor, noise: torch.Generator) -> Tensor:
    """Cut a random box out of each image, resized to the image's size and flipped at random."""
    n = len(images)
    area = uniform(CROP_SCALE, 1, n, noise)
    aspect = uniform(math.log(3 / 4), math.log(4 / 3), n, noise).exp()
    width = (area * aspect).sqrt().clamp(max=1)
    height = (area / aspect).sqrt().clamp(max=1)
    flip = 1 - 2 * torch.randint(2, (n,), generator=noise)

    # Maps output coordinates in [-1, 1] to the box; a negative width flips it.
    affine = torch.zeros(n, 2, 3)
    affine[:, 0, 0] = width * flip
    affine[:, 1, 1] = height
    affine[:, 0, 2] = uniform(-1, 1, n, noise) * (1 - width)
    affine[:, 1, 2] = uniform(-1, 1, n, noise) * (1 - height)
    grid = F.affine_grid(affine, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def uniform(low: float, high: float, n: int, noise: torch.Generator) -> Tensor:
    """Draw n numbers between `low` and `high`."""
    return low + (high - low) * torch.rand(n, generator=noise)


def train_epoch(
    model: nn.Module,
    optimizer: Optimizer,
    schedule: LRScheduler,
    images: Tensor,
    labels: Tensor,
    noise: torch.Generator,
) -> float:
    """Train one pass over images without the last, partial batch; return the mean loss.

    Args:
        model: The model.
        optimizer: Its optimizer.
        schedule: Of the learning rate, by steps.
        images: (N, 3, 32, 32) uint8.
        labels: (N,).
        noise: Random numbers of the order and the augmentation.
    """
    model.train()
    order = torch.randperm(len(images), generator=noise)
    # Whole batches alone.
    order = order[: len(order) // BATCH_SIZE * BATCH_SIZE]
    losses = []
    for batch in tqdm(order.split(BATCH_SIZE), leave=False, mininterval=1):
        augmented = augment(images[batch] / 255, noise)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(augmented).float()
        loss = F.cross_entropy(logits, labels[batch], label_smoothing=LABEL_SMOOTHING)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return float(np.mean(losses))


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images (N, 3, 32, 32) uint8 that the model, in fp32, classifies right."""
    model.eval()
    predicted = []
    for batch in images.split(500):
        predicted.append(model(normalise(batch / 255)).argmax(1))
    return (torch.cat(predicted) == labels).float().mean().item()


if __name__ == "__main__":
    run_script(main)
