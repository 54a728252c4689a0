"""Pretrain the packaged small backbone by classification of CIFAR-10's training images.

    python experiments/pretrain_tiny.py        # 25 minutes on one core

The last 500 images of each class are held out: they only give the reported accuracy. The same command, images and
packages give the same weights, bit for bit, in vit_tiny_patch8_32.safetensors.
"""

import pvera  # isort: skip  # noqa: F401  before timm

import hashlib
import json
import math
import platform
from pathlib import Path

import numpy as np
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
from options import Parser
from timm.models import get_pretrained_cfg
from timm.optim import create_optimizer_v2
from torchvision.datasets import CIFAR10, ImageFolder
from tqdm import tqdm

from pvera import backbones
from pvera.adapters.base import generator
from pvera.errors import InputError, as_input_error, run_script
from pvera.files import write_atomically

MEAN, STD = (
    torch.tensor(getattr(get_pretrained_cfg(backbones.TINY), key)).view(3, 1, 1)
    for key in ("mean", "std")
)
HELD_OUT = 500  # images per class
SEED, EPOCHS, BATCH_SIZE = 0, 50, 256
RATE = 2e-3  # largest learning rate of AdamW
WARMUP = 3 / 50  # of all steps; half a cosine down to zero follows
WEIGHT_DECAY = 0.05
LABEL_SMOOTHING = 0.1
CROP_SCALE = 0.5  # smallest area of the random crop, as a part of the image
JITTER = 0.3  # largest change of brightness, contrast, saturation


def main():
    parser = Parser(__doc__)
    parser.add_argument("--source", type=Path, metavar="FOLDER", help="of 32x32 images named <class>/<number>.jpg, "
                        "instead of CIFAR-10 from torchvision, which downloads it")  # fmt: skip
    source, output = parser.parse_args().source, Path(f"{backbones.TINY}.safetensors")
    if output.exists():
        raise InputError(f"{output} exists: remove it")
    torch.set_num_threads(1)

    images, labels, classes = read(source)
    held_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        held_out[np.flatnonzero(labels == label)[-HELD_OUT:]] = True
    images_sha256 = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    images, labels = (
        torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(),
        torch.from_numpy(labels),
    )
    training, testing = ((images[mask], labels[mask]) for mask in (~held_out, held_out))

    with backbones.seeded(SEED):
        model = timm.create_model(backbones.TINY, num_classes=len(classes))
    adamw = create_optimizer_v2(
        model, "adamw", RATE, WEIGHT_DECAY, fused=True
    )  # matrices alone decay
    steps = EPOCHS * (len(training[0]) // BATCH_SIZE)
    warmup = WARMUP * steps

    def scale(step):
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))

    schedule = torch.optim.lr_scheduler.LambdaLR(adamw, scale)
    for epoch in range(EPOCHS):
        loss = train_epoch(model, adamw, schedule, *training, generator(SEED, "pretrain", epoch))
        right = accuracy(model, *testing)
        tqdm.write(f"epoch {epoch + 1}: loss {loss:.4f}, held-out accuracy {right:.4f}")

    weights = {
        key: value for key, value in model.state_dict().items() if not key.startswith("head.")
    }
    metadata = {
        "images_sha256": images_sha256,
        "weights_sha256": backbones.weights_sha256(weights),
        "held_out_accuracy": right,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "timm": timm.__version__,
        },
    }
    described = {key: json.dumps(value) for key, value in metadata.items()}
    write_atomically(output, safetensors.torch.save(weights, described))
    print(f"{output}: held-out accuracy {right:.4f}")


def read(source):
    """Return images (N, 32, 32, 3) uint8, labels (N,) int64, sorted by class and number, and names of classes.

    Downloads CIFAR-10's training images into data/ without a `source`.
    """
    with as_input_error(
        f"{source or 'CIFAR-10'} cannot be read", "--source takes images named <class>/<number>.jpg"
    ):
        if source is None:
            data = CIFAR10("data", train=True, download=True)
            order = np.argsort(data.targets, kind="stable")
            return data.data[order], np.array(data.targets)[order], data.classes
        data = ImageFolder(source)
        data.samples.sort(key=lambda sample: (sample[1], int(Path(sample[0]).stem)))
        images = np.stack([np.asarray(image) for image, _ in tqdm(data, "decode", unit="image")])
        return images, np.array([label for _, label in data.samples]), data.classes


def normalise(images):
    """Normalise images (batch, 3, 32, 32) in [0, 1] with the backbone's mean and standard deviation."""
    return (images - MEAN) / STD


def augment(images, noise):
    """Crop, resize, flip, jitter and normalise each image at random; images (batch, 3, 32, 32) in [0, 1]."""
    n = len(images)

    def uniform(low, high):
        return low + (high - low) * torch.rand(n, generator=noise)

    area, aspect = uniform(CROP_SCALE, 1), uniform(math.log(3 / 4), math.log(4 / 3)).exp()
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    flip = 1 - 2 * torch.randint(2, (n,), generator=noise)
    affine = torch.zeros(n, 2, 3)
    affine[:, 0, 0], affine[:, 1, 1] = width * flip, height
    affine[:, 0, 2], affine[:, 1, 2] = uniform(-1, 1) * (1 - width), uniform(-1, 1) * (1 - height)
    grid = F.affine_grid(affine, list(images.shape), align_corners=False)
    images = F.grid_sample(images, grid, padding_mode="border", align_corners=False)

    brightness, contrast, saturation = (
        uniform(1 - JITTER, 1 + JITTER).view(n, 1, 1, 1) for _ in range(3)
    )
    images = images * brightness
    images = torch.lerp(images.mean((1, 2, 3), keepdim=True), images, contrast)
    images = torch.lerp(images.mean(1, keepdim=True), images, saturation)
    return normalise(images.clamp(0, 1))


def train_epoch(model, adamw, schedule, images, labels, noise):
    """Train one pass over images (N, 3, 32, 32) uint8 without the last, partial batch; return the mean loss."""
    model.train()
    order, losses = torch.randperm(len(images), generator=noise), []
    for batch in tqdm(
        order[: len(order) // BATCH_SIZE * BATCH_SIZE].split(BATCH_SIZE), leave=False, mininterval=1
    ):
        augmented = augment(images[batch] / 255, noise)
        with torch.autocast("cpu", torch.bfloat16):
            scores = model(augmented).float()
        loss = F.cross_entropy(scores, labels[batch], label_smoothing=LABEL_SMOOTHING)
        adamw.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        schedule.step()
        losses.append(loss.item())
    return np.mean(losses)


@torch.no_grad()
def accuracy(model, images, labels):
    """Return the share of images (N, 3, 32, 32) uint8 that the model, in fp32, classifies correctly."""
    model.eval()
    predicted = torch.cat([model(normalise(batch / 255)).argmax(1) for batch in images.split(500)])
    return (predicted == labels).float().mean().item()


if __name__ == "__main__":
    run_script(main)
