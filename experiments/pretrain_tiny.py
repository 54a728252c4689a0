"""Pretrain the packaged small backbone by classification of CIFAR-10's training images.

500 images per class are held out: they only give the reported accuracy. After a kill, the same command resumes after
the last finished epoch and ends
with the same weights.
"""

import pvera  # isort: skip  # noqa: F401  before timm

import hashlib
import io
import json
import math
import pickle
import platform
import time
import zipfile
import zlib
from argparse import ArgumentDefaultsHelpFormatter
from collections import defaultdict
from pathlib import Path

import numpy as np
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
from options import Parser
from PIL import Image
from timm.models import get_pretrained_cfg
from tqdm import tqdm

from pvera import backbones, seeding
from pvera.errors import InputError
from pvera.study import script
from pvera.study.results import write_atomically

SIZE = backbones.TINY_ARCHITECTURE["img_size"]
MEAN, STD = (torch.tensor(getattr(get_pretrained_cfg(backbones.TINY), key)).view(3, 1, 1) for key in ("mean", "std"))
NOT_IN_CONFIG = ("source", "download_dir", "output", "force")
LARGEST_MEMBER = 1 << 20  # bytes; a 32x32 image has a few thousand


def arguments():
    parser = Parser(__doc__, ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add(
        "--source",
        type=Path,
        help="zip archive of 32x32 images named <class>/<number>.jpg; without it, torchvision downloads CIFAR-10",
    )
    add("--download-dir", type=Path, default=Path("data"), help="where torchvision's CIFAR-10 is or goes")
    add("--output", type=Path, default=Path("vit_tiny_patch8_32.safetensors"), help="weights to write")
    add("--force", action="store_true", help="overwrite existing weights")
    add("--held-out", type=int, default=500, help="held-out images per class: those with the highest numbers")
    add("--epochs", type=int, default=50)
    add("--warmup-epochs", type=float, default=3.0)
    add("--batch-size", type=int, default=256)
    add(
        "--lr",
        type=float,
        default=2e-3,
        help="peak learning rate of AdamW; half a cosine down to zero follows",
    )
    add("--weight-decay", type=float, default=0.05, help="on matrices only")
    add("--label-smoothing", type=float, default=0.1)
    add(
        "--crop-scale",
        type=float,
        default=0.5,
        help="smallest area of the random crop, as a part of the image",
    )
    add("--jitter", type=float, default=0.3, help="largest change of brightness, contrast, saturation")
    add("--precision", choices=("bf16", "fp32"), default="bf16", help="bf16: autocast of the forward pass")
    add(
        "--threads",
        type=int,
        default=1,
        help="CPU threads; the weights repeat bit for bit for the same number",
    )
    add("--seed", type=int, default=0)
    return parser.parse_args()


def read_zip(path):
    """Return images (N, 32, 32, 3) uint8, labels (N,) int64 and class names, sorted by class and number."""
    members = defaultdict(list)
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.is_dir():
                    continue
                folder, _, name = info.filename.partition("/")
                stem = name.rpartition(".")[0]
                if not stem.isdecimal():
                    raise InputError(f"{path}: {info.filename!r} is not named <class>/<number>.jpg")
                members[folder].append((int(stem), info))
            classes = sorted(members)
            images, labels = [], []
            with tqdm(total=sum(map(len, members.values())), desc="decode", unit="image") as bar:
                for label, folder in enumerate(classes):
                    for _, info in sorted(members[folder], key=lambda member: member[0]):
                        images.append(decode(archive, info, path))
                        labels.append(label)
                        bar.update()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (zipfile.BadZipFile, IsADirectoryError, PermissionError) as error:
        raise InputError(f"{path}: not a readable zip archive ({error})") from None
    if len(classes) < 2:
        raise InputError(f"{path}: needs images of two classes or more, named <class>/<number>.jpg")
    return np.stack(images), np.array(labels), classes


def decode(archive, info, path):
    if info.file_size > LARGEST_MEMBER:
        raise InputError(f"{path}: {info.filename} has {info.file_size} bytes, too many for a {SIZE}x{SIZE} image")
    try:
        with Image.open(io.BytesIO(archive.read(info))) as image:
            if image.size != (SIZE, SIZE):
                raise InputError(f"{path}: {info.filename} has {image.size} pixels instead of {(SIZE, SIZE)}")
            return np.asarray(image.convert("RGB"))
    except InputError:
        raise
    except (OSError, RuntimeError, SyntaxError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{path}: cannot read {info.filename} ({' '.join(str(error).split())})") from None


def read_torchvision(folder):
    from torchvision.datasets import CIFAR10

    try:
        data = CIFAR10(folder, train=True, download=True)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"cannot get CIFAR-10 into {folder} ({' '.join(str(error).split())}); give a zip archive with --source"
        ) from None
    labels = np.array(data.targets)
    order = np.argsort(labels, kind="stable")
    return data.data[order], labels[order], data.classes


def split(labels, held_out):
    """Return a boolean mask (N,) of the held-out images: the last `held_out` of each class."""
    mask = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        of_class = np.flatnonzero(labels == label)
        if not 0 < held_out < len(of_class):
            raise InputError(f"--held-out {held_out}: class {label} has only {len(of_class)} images")
        mask[of_class[-held_out:]] = True
    return mask


def normalise(images):
    """Normalise images (batch, 3, 32, 32) in [0, 1] with the backbone's mean and standard deviation."""
    return (images - MEAN) / STD


def augment(images, args, noise):
    """Crop, resize, flip, jitter and normalise each image at random; images (batch, 3, 32, 32) in [0, 1]."""
    n = len(images)

    def uniform(low, high):
        return low + (high - low) * torch.rand(n, generator=noise)

    area, aspect = uniform(args.crop_scale, 1), uniform(math.log(3 / 4), math.log(4 / 3)).exp()
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    flip = 1 - 2 * torch.randint(2, (n,), generator=noise)
    affine = torch.zeros(n, 2, 3)
    affine[:, 0, 0], affine[:, 1, 1] = width * flip, height
    affine[:, 0, 2], affine[:, 1, 2] = uniform(-1, 1) * (1 - width), uniform(-1, 1) * (1 - height)
    grid = F.affine_grid(affine, list(images.shape), align_corners=False)
    images = F.grid_sample(images, grid, padding_mode="border", align_corners=False)

    def factor():
        return uniform(1 - args.jitter, 1 + args.jitter).view(n, 1, 1, 1)

    images = images * factor()
    images = torch.lerp(images.mean((1, 2, 3), keepdim=True), images, factor())  # contrast
    images = torch.lerp(images.mean(1, keepdim=True), images, factor())  # saturation
    return normalise(images.clamp(0, 1))


def optimizer(model, args, steps):
    matrices = [p for p in model.parameters() if p.ndim >= 2 and p.shape[0] > 1]  # without tokens and positions
    others = [p for p in model.parameters() if p.ndim < 2 or p.shape[0] == 1]
    adamw = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": args.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=args.lr,
        fused=True,
    )
    warmup = args.warmup_epochs / args.epochs * steps

    def scale(step):
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))

    return adamw, torch.optim.lr_scheduler.LambdaLR(adamw, scale)


def logits(model, images, args):
    with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
        return model(images).float()


def train_epoch(model, adamw, schedule, images, labels, args, epoch):
    """Train one pass over images (N, 3, 32, 32) uint8 without the last, partial batch; return the mean loss."""
    model.train()
    # Drawn from seed and epoch alone, so a checkpoint needs no generator state.
    noise = seeding.generator(args.seed, "pretrain", epoch)
    order = torch.randperm(len(images), generator=noise)
    total, batches = 0.0, len(images) // args.batch_size
    for batch in tqdm(
        order[: batches * args.batch_size].split(args.batch_size),
        desc=f"epoch {epoch + 1}/{args.epochs}",
        leave=False,
        mininterval=1,
    ):
        scores = logits(model, augment(images[batch] / 255, args, noise), args)
        loss = F.cross_entropy(scores, labels[batch], label_smoothing=args.label_smoothing)
        adamw.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        schedule.step()
        total += loss.item()
    return total / batches


@torch.no_grad()
def accuracy(model, images, labels):
    """Return the share of images (N, 3, 32, 32) uint8 that the model, in fp32, classifies correctly."""
    model.eval()
    right = sum(
        (model(normalise(x / 255)).argmax(1) == y).sum().item()
        for x, y in zip(images.split(500), labels.split(500), strict=True)
    )
    return right / len(labels)


def resume(path, config, parts):
    """Load the checkpoint into `parts` (modules and optimizers by name); return finished epochs and their seconds."""
    if not path.exists():
        return 0, 0.0
    try:
        state = torch.load(path, weights_only=True)
        same = state["config"] == json.dumps(config)
    except (OSError, RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError):
        raise InputError(f"{path} is damaged; remove it to start anew") from None
    if not same:
        raise InputError(f"{path} is of other arguments or images; remove it to start anew")
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return state["epoch"], state["seconds"]


def save_checkpoint(path, config, parts, epoch, seconds):
    content = io.BytesIO()
    state = {name: part.state_dict() for name, part in parts.items()}
    torch.save(state | {"config": json.dumps(config), "epoch": epoch, "seconds": seconds}, content)
    write_atomically(path, content.getvalue())


def main():
    args = arguments()
    if args.output.exists() and not args.force:
        raise InputError(f"{args.output} exists; --force overwrites it")
    if not args.output.parent.is_dir():
        raise InputError(f"{args.output.parent}: no such folder")
    for name, valid, requirement in (
        ("epochs", args.epochs >= 1, "at least 1"),
        ("batch-size", args.batch_size >= 1, "at least 1"),
        ("threads", args.threads >= 1, "at least 1"),
        ("warmup-epochs", 0 <= args.warmup_epochs < args.epochs, "at least 0 and less than --epochs"),
        ("lr", args.lr > 0, "positive"),
        ("weight-decay", args.weight_decay >= 0, "at least 0"),
        ("label-smoothing", 0 <= args.label_smoothing < 1, "in [0, 1)"),
        ("crop-scale", 0 < args.crop_scale <= 1, "in (0, 1]"),
        ("jitter", 0 <= args.jitter <= 1, "in [0, 1]"),
    ):
        if not valid:
            raise InputError(f"--{name} must be {requirement}")
    torch.set_num_threads(args.threads)

    images, labels, classes = read_zip(args.source) if args.source else read_torchvision(args.download_dir)
    held_out = split(labels, args.held_out)
    images_sha256 = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    images, labels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)
    training, testing = ((images[mask], labels[mask]) for mask in (~held_out, held_out))
    batches = len(training[0]) // args.batch_size
    if not batches:
        raise InputError(f"--batch-size {args.batch_size}: there are only {len(training[0])} training images")

    with backbones.seeded(args.seed):
        model = timm.create_model(backbones.TINY, num_classes=len(classes))
    adamw, schedule = optimizer(model, args, args.epochs * batches)

    # Everything that determines the weights; only a checkpoint of the same config is resumed.
    config = {key: value for key, value in vars(args).items() if key not in NOT_IN_CONFIG}
    config |= {"images_sha256": images_sha256, "architecture": backbones.TINY_ARCHITECTURE}
    checkpoint = args.output.with_suffix(".checkpoint")
    parts = {"model": model, "adamw": adamw, "schedule": schedule}
    finished, seconds = resume(checkpoint, config, parts)
    for epoch in range(finished, args.epochs):
        start = time.perf_counter()
        loss = train_epoch(model, adamw, schedule, *training, args, epoch)
        seconds += time.perf_counter() - start
        save_checkpoint(checkpoint, config, parts, epoch + 1, seconds)
        right = accuracy(model, *testing)
        tqdm.write(f"epoch {epoch + 1}: loss {loss:.4f}, held-out accuracy {right:.4f}, {seconds:.0f} s")

    weights = {key: value for key, value in model.state_dict().items() if not key.startswith("head.")}
    metadata = config | {
        "weights_sha256": backbones.weights_sha256(weights),
        "held_out_accuracy": accuracy(model, *testing),
        "classes": classes,
        "training_images": len(training[0]),
        "held_out_images": len(testing[0]),
        "training_seconds": round(seconds),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "timm": timm.__version__,
        },
    }
    write_atomically(
        args.output,
        safetensors.torch.save(weights, {key: json.dumps(value) for key, value in metadata.items()}),
    )
    checkpoint.unlink()
    print(f"{args.output}: held-out accuracy {metadata['held_out_accuracy']:.4f}")


if __name__ == "__main__":
    script.run(main)
