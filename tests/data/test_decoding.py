"""Decoding of image files: 8-bit RGB as displayed, or a one-line error that names the file."""

import os
import struct
import zlib

import numpy as np
import pytest
from PIL import ExifTags, Image

from pvera.data import image_folders
from pvera.errors import InputError

SIDE = 32
EIGHT = np.random.default_rng(0).integers(256, size=(SIDE, SIDE, 3), dtype=np.uint8)
SIXTEEN = 257 * EIGHT.astype(np.uint16)  # the same picture


@pytest.fixture
def folder(tmp_path):
    """An empty `digits` data set (ten classes) below tmp_path."""
    folder = tmp_path / "digits"
    folder.mkdir()
    return folder


def read_back(folder, name: str) -> np.ndarray:
    (folder / "test.txt").write_text(f"{name} 3\n")
    return image_folders.load_split(folder.parent, "digits", "test", SIDE).images[0]


def refusal(folder, name: str) -> str:
    with pytest.raises(InputError) as caught:
        read_back(folder, name)
    message = str(caught.value)
    assert message.startswith(f"image {folder / name} cannot be read: ") and "\n" not in message
    return message


def png(values: np.ndarray) -> bytes:
    """A 16-bit PNG file of grey (h, w), or of (h, w, channels)."""
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[values[0, 0].size]
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, kind, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def tiff(content: bytes, bits: int, channels: int = 1, kind: int = 1, inverted: bool = False, turn: int = 1) -> bytes:
    """A little-endian TIFF file of SIDE x SIDE pixels; kind 1: unsigned, 2: signed, 3: float."""
    depths = 8 + 2 + 10 * 12 + 4  # their offset, after the header and ten entries
    tags = [
        (256, 1, SIDE),
        (257, 1, SIDE),
        (258, channels, bits if channels == 1 else depths),
        (259, 1, 1),
        (262, 1, 2 if channels == 3 else int(not inverted)),
        (273, 1, depths + 6),
        (274, 1, turn),
        (277, 1, channels),
        (279, 1, len(content)),
        (339, 1, kind),
    ]
    directory = b"".join(struct.pack("<HHII", tag, 3, count, value) for tag, count, value in tags)
    header = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return header + directory + bytes(4) + struct.pack("<3H", *[bits] * 3) + content


GREY, ALPHA = EIGHT[..., :1].repeat(3, axis=2), SIXTEEN[..., :1] // 2
#: Files of 16 bits, and the same pictures in 8 bits; alpha is dropped.
SAME = {
    "grey.png": (png(SIXTEEN[..., 0]), GREY),
    "grey.tiff": (tiff(SIXTEEN[..., 0].tobytes(), 16), GREY),
    "grey.pgm": (f"P5 {SIDE} {SIDE} 65535\n".encode() + SIXTEEN[..., 0].astype(">u2").tobytes(), GREY),
    "colour.png": (png(SIXTEEN), EIGHT),
    "colour.tiff": (tiff(SIXTEEN.tobytes(), 16, 3), EIGHT),
    "grey_alpha.png": (png(np.concatenate([SIXTEEN[..., :1], ALPHA], 2)), GREY),
    "colour_alpha.png": (png(np.concatenate([SIXTEEN, ALPHA], 2)), EIGHT),
}


@pytest.mark.parametrize("file", SAME)
def test_sixteen_bits_give_the_picture_of_eight(folder, file):
    content, expected = SAME[file]
    (folder / file).write_bytes(content)
    assert np.array_equal(read_back(folder, file), expected)


def test_sixteen_bits_are_divided_by_257(folder):
    values = np.arange(0, 2**16, 64, dtype=np.uint16).reshape(SIDE, SIDE)
    (folder / "a.png").write_bytes(png(values))
    assert np.array_equal(read_back(folder, "a.png")[..., 1], np.round(values / 257))


PIXELS = SIDE * SIDE
UNDEFINED = {
    "float": tiff(np.linspace(0, 1, PIXELS, dtype=np.float32).tobytes(), 32, kind=3),
    "32 bits": tiff(np.arange(PIXELS, dtype=np.uint32).tobytes(), 32),
    "signed": tiff(np.arange(PIXELS, dtype=np.int16).tobytes(), 16, kind=2),
    "12 bits": tiff(bytes(PIXELS * 3 // 2), 12),
    "inverted": tiff(SIXTEEN[..., 0].tobytes(), 16, inverted=True),
    "PFM": f"Pf\n{SIDE} {SIDE}\n-1.0\n".encode() + bytes(4 * PIXELS),
}


@pytest.mark.parametrize("case", UNDEFINED)
def test_values_without_a_defined_range_are_refused(folder, case):
    (folder / "a.tiff").write_bytes(UNDEFINED[case])
    assert "the range of its values is not defined" in refusal(folder, "a.tiff")


# The displayed image for each stored orientation.
SHOWN = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: np.rot90(x, -1),
    7: lambda x: x[::-1, ::-1].swapaxes(0, 1),
    8: lambda x: np.rot90(x),
}


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "tiff"])
@pytest.mark.parametrize("orientation", SHOWN)
def test_the_exif_orientation_is_applied(folder, orientation, suffix):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    file = folder / f"a.{suffix}"
    Image.fromarray(EIGHT).save(file, exif=exif, lossless=True, quality=100, subsampling=0)
    decoded, expected = read_back(folder, file.name), SHOWN[orientation](EIGHT)
    assert np.abs(decoded.astype(int) - expected).max() <= (8 if suffix == "jpg" else 0)


def test_orientation_comes_before_resizing_and_beside_sixteen_bits(folder):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(EIGHT[:20]).save(folder / "a.png", exif=exif)
    expected = Image.fromarray(np.rot90(EIGHT[:20], -1)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    assert np.array_equal(read_back(folder, "a.png"), expected)
    (folder / "b.tiff").write_bytes(tiff(SIXTEEN[..., 0].tobytes(), 16, turn=8))
    assert np.array_equal(read_back(folder, "b.tiff")[..., 0], np.rot90(EIGHT[..., 0]))


ORIENTATION = struct.pack(">HHIHH", ExifTags.Base.Orientation, 3, 1, 6, 0)
WIDTH = struct.pack(">HHI4s", ExifTags.Base.ImageWidth, 2, 1, b"text")  # it cannot be encoded again
EXIF = {
    b"garbage": EIGHT,
    b"Exif\0\0II*\0\xff\xff\xff\xff": EIGHT,
    b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 2) + ORIENTATION + WIDTH + bytes(4): np.rot90(EIGHT, -1),
}


@pytest.mark.parametrize("exif", EXIF)
@pytest.mark.filterwarnings("ignore:Corrupt EXIF:UserWarning", "ignore:Truncated File:UserWarning")
def test_a_damaged_exif_block_turns_the_image_only_where_it_says_so(folder, exif):
    Image.fromarray(EIGHT).save(folder / "a.png", exif=exif)
    assert np.array_equal(read_back(folder, "a.png"), EXIF[exif])


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "tiff"])
def test_the_first_frame_of_an_animation(folder, suffix):
    frames = [Image.new("RGB", (SIDE, SIDE), colour) for colour in ("red", "blue")]
    frames[0].save(folder / f"a.{suffix}", save_all=True, append_images=frames[1:], lossless=True)
    with Image.open(folder / f"a.{suffix}") as stored:
        assert stored.n_frames == 2
    assert (read_back(folder, f"a.{suffix}") == [255, 0, 0]).all()


@pytest.mark.parametrize("mode", ["L", "P", "transparent P", "RGBA", "LA", "1", "CMYK"])
def test_every_mode_comes_out_as_pillows_rgb(folder, mode):
    """Transparent entries of a palette keep their colour."""
    kind, (*transparent, mode) = "tiff" if mode == "CMYK" else "png", mode.split()
    image = Image.fromarray(EIGHT)
    if mode in ("RGBA", "LA"):
        image.putalpha(Image.fromarray(EIGHT[::-1, :, 0].copy()))
    image = image.convert(mode)
    image.save(folder / f"a.{kind}", **({"transparency": bytes(256)} if transparent else {}))
    with Image.open(folder / f"a.{kind}") as stored:
        assert stored.mode == mode and ("transparency" in stored.info) == bool(transparent)
    assert np.array_equal(read_back(folder, f"a.{kind}"), image.convert("RGB"))


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif", "bmp", "tiff", "webp"])
def test_a_damaged_image_is_named(folder, suffix):
    file = folder / f"a.{suffix}"
    Image.fromarray(EIGHT).save(file)
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"not an image\n"):
        file.write_bytes(content)
        refusal(folder, file.name)


@pytest.mark.timeout(60)
def test_only_regular_files_are_opened(folder):
    os.mkfifo(folder / "pipe.png")
    (folder / "folder.png").mkdir()
    (folder / "device.png").symlink_to("/dev/zero")
    for name in ("pipe.png", "folder.png", "device.png"):
        assert refusal(folder, name).endswith("it is not a regular file")
    (folder / "test.txt").unlink()
    os.mkfifo(folder / "test.txt")
    with pytest.raises(InputError, match="test.txt cannot be read: it is not a regular file"):
        image_folders.load_split(folder.parent, "digits", "test", SIDE)
