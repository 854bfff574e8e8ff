import pickle
import tarfile

import numpy as np
import pytest

from moml.data.images import cifar
from moml.data.images.cifar import LAYOUTS, files, places
from moml.errors import DataError
from tests.data import made

TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
HUNDRED, TWENTY = [f"fine{k}" for k in range(100)], [f"coarse{k}" for k in range(20)]
text = lambda names: ("\n".join(names) + "\n\n").encode()  # the publisher's ends with an empty line
raw = lambda names: [name.encode() for name in names]


def content(name, form):
    """The files of an archive by name, and the rows of each split."""
    layout = LAYOUTS[name][form == "python"]
    classes = {"cifar10": 10, "cifar100": 100}[name]
    out, kept = {}, {}
    for split, names in layout.files.items():
        parts = [made.rows(classes, classes, seed) for seed, _ in enumerate(names)]
        for file, (x, fine) in zip(names, parts, strict=True):
            coarse = fine % 20
            if form == "binary":
                out[file] = made.binary(x, *([coarse] if classes == 100 else []), fine)
            elif classes == 10:
                out[file] = made.python2({b"data": x, b"labels": fine.tolist()})
            else:
                labels = {b"fine_labels": fine.tolist(), b"coarse_labels": coarse.tolist()}
                out[file] = made.python2(labels | {b"data": x, b"batch_label": b"one"})
        kept[split] = [np.concatenate(part) for part in zip(*parts, strict=True)]
    if form == "python":
        lists = {b"label_names": raw(TEN)} if classes == 10 else {
            b"fine_label_names": raw(HUNDRED), b"coarse_label_names": raw(TWENTY)
        }  # fmt: skip
        out[layout.meta] = made.python2(lists)
    else:
        texts = [text(TEN)] if classes == 10 else [text(HUNDRED), text(TWENTY)]
        out |= dict(zip(layout.names, texts, strict=True))
    return layout, out, kept


def unpacked(root, layout, out):
    (root / layout.folder).mkdir(parents=True)
    for name, body in out.items():
        (root / layout.folder / name).write_bytes(body)
    return root / layout.folder


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("form", ["binary", "python"])
@pytest.mark.parametrize("packed", [True, False])
def test_all_forms_give_the_same_images(tmp_path, name, form, packed):
    layout, out, kept = content(name, form)
    if packed:
        made.tar(tmp_path / layout.archive, out, layout.folder)
    else:
        unpacked(tmp_path, layout, out)
    [place] = places(name, tmp_path)
    for split, (x, fine) in kept.items():
        assert all(path.is_file() for path in files(place, split))
        images = cifar.read(place, split, whole=False)
        back = np.argsort(images.row)
        np.testing.assert_array_equal(images.y[back], fine)
        np.testing.assert_array_equal(
            images.x[back], x.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        )
        assert images.x.flags.c_contiguous and (np.diff(images.y) >= 0).all()
        if name == "cifar10":
            assert images.names == tuple(TEN) and images.groups is None
        else:
            assert images.names == tuple(HUNDRED)
            assert images.groups == tuple(TWENTY[k % 20] for k in range(100))


def test_where_it_may_lie(tmp_path):
    layout, out, _ = content("cifar10", "binary")
    folder = unpacked(tmp_path / "cifar-10", layout, out)
    made.tar(tmp_path / layout.archive, out, layout.folder)
    assert places("cifar10", tmp_path) == [folder, tmp_path / layout.archive]
    assert places("cifar10", folder) == [folder]
    assert places("cifar100", tmp_path) == []


def test_a_copy_that_was_cut_is_not_whole(tmp_path):
    layout, out, _ = content("cifar10", "binary")
    folder = unpacked(tmp_path, layout, out)
    with pytest.raises(DataError, match=r"data_batch_1.bin must have 10,000 images; got 10"):
        cifar.read(folder, "train")


def pickled(**changes):
    def change(body):
        batch = {b"data": np.zeros((10, 3072), np.uint8), b"labels": list(range(10))}
        batch |= {key.encode(): value for key, value in changes.items()}
        return made.python2({key: value for key, value in batch.items() if value is not None})

    return change


class Evil:
    def __reduce__(self):
        return (print, ("run!",))


@pytest.mark.parametrize(
    "form, file, change, words",
    [
        ("binary", "data_batch_3.bin", lambda body: body[:-1], "must have rows of 3,073 bytes"),
        ("binary", "data_batch_3.bin", lambda body: b"\x0b" + body[1:], "from 0 to 9; got 0 to 11"),
        ("binary", "data_batch_2.bin", None, "is missing"),
        ("binary", "batches.meta.txt", None, "is missing"),
        ("python", "data_batch_3", lambda body: body[:-1000], "not a pickled batch"),
        ("python", "data_batch_3", lambda body: pickle.dumps({"data": Evil()}), "builtins.print"),
        ("python", "data_batch_3", pickled(data=None), "data is missing in it; there are labels"),
        ("python", "data_batch_3", pickled(labels=None), "labels is missing"),
        ("python", "data_batch_3", pickled(labels=[1, 2]), "labels must be a list of 10 labels"),
        ("python", "data_batch_3", pickled(labels=[b"a"] * 10), "labels must be whole numbers"),
        ("python", "data_batch_3", pickled(labels=[-1] * 10), "got -1 to"),
        ("python", "data_batch_3", pickled(data=np.zeros((10, 9), np.uint8)), "shape"),
        ("python", "data_batch_3", pickled(data=np.zeros((10, 3072), "<i2")), "matrix of bytes"),
        ("python", "batches.meta", lambda body: made.python2({b"label_names": 3}), "list of names"),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_a_wrong_file_is_named(tmp_path, form, file, change, words, packed):
    layout, out, _ = content("cifar10", form)
    if change is None:
        del out[file]
    else:
        out[file] = change(out[file])
    if packed:
        place = made.tar(tmp_path / layout.archive, out, layout.folder)
    else:
        place = unpacked(tmp_path, layout, out)
    with pytest.raises(DataError, match=words) as raised:
        files(place, "train")
        cifar.read(place, "train", whole=False)
    assert str(place) in str(raised.value) and file in str(raised.value)


def test_a_class_is_in_one_group(tmp_path):
    layout, out, kept = content("cifar100", "binary")
    x, fine = kept["train"]
    coarse = fine % 20
    coarse[0] = (coarse[0] + 1) % 20
    out["train.bin"] = made.binary(
        np.concatenate([x, x]), np.concatenate([coarse, fine % 20]), np.concatenate([fine, fine])
    )
    folder = unpacked(tmp_path, layout, out)
    with pytest.raises(DataError, match=f"train.bin: class fine{fine[0]} is in more than one"):
        cifar.read(folder, "train", whole=False)


def test_a_truncated_or_foreign_archive_is_named(tmp_path):
    layout, out, _ = content("cifar10", "binary")
    place = made.tar(tmp_path / layout.archive, out, layout.folder)
    whole = place.read_bytes()
    for body in (whole[: len(whole) // 2], b"<html>", b""):
        place.write_bytes(body)
        with pytest.raises(DataError, match=r"binary.tar.gz(: .* is missing| is truncated)"):
            cifar.read(place, "train", whole=False)


def test_links_in_an_archive_are_not_followed(tmp_path):
    layout, out, _ = content("cifar10", "binary")
    secret = tmp_path / "secret"
    secret.write_bytes(out.pop("test_batch.bin"))
    place = made.tar(tmp_path / "good.tar.gz", out, layout.folder)
    with tarfile.open(tmp_path / layout.archive, "w:gz") as archive:
        with tarfile.open(place) as good:
            for member in good:
                archive.addfile(member, good.extractfile(member))
        link = tarfile.TarInfo(f"{layout.folder}/test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(link)
    with pytest.raises(DataError, match=r"test_batch.bin is missing"):
        cifar.read(tmp_path / layout.archive, "test", whole=False)
