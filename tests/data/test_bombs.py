"""Small files that stand for gigabytes: one line, and little memory."""

import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zlib

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from moml.cli import main
from moml.data import extend_table, read_table
from moml.data.images import cifar, omniglot
from moml.data.images.pickles import loads
from moml.data.table import limits
from moml.errors import ConfigError, DataError

MEGABYTE = gzip.compress(bytes(1 << 20))  # a member of a gzip file
READ = """
import sys, resource
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from pathlib import Path
from moml.data import read_table
from moml.data.images import cifar, mnist
from moml.data.images.pickles import loads
from moml.errors import DataError
readers = {"table": read_table, "mnist": lambda p: mnist.read(Path(p), "train", False),
           "cifar": lambda p: cifar.read(Path(p), "test", False),
           "pickle": lambda p: loads(Path(p).read_bytes(), p)}
for given in sys.argv[1:]:
    kind, path = given.split("=")
    try:
        readers[kind](path)
        print("read")
    except DataError as error:
        print(error)
status = open("/proc/self/status").read()
print(int(status.split("VmHWM:")[1].split()[0]) // 1024)
"""


def zeros(rows, kind="int32"):
    return pa.array(np.zeros(rows, kind))


def many_rows(folder):
    """Equal values, run-length encoded: 2^24 rows in some kilobytes."""
    parquet.write_table(pa.table({"y": zeros(1 << 24, "int8")}), folder / "rows.parquet")
    return folder / "rows.parquet"


def long_word(folder):
    """A cell of 120 MB."""
    word = pa.array(["a" * (120 << 20)])
    table, path = pa.table({"y": word}), folder / "word.parquet"
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    return path


def compressed(folder):
    """300 MB in one batch."""
    table = pa.table({"y": zeros(300 << 20, "int8")})
    feather.write_feather(table, folder / "zeros.arrow", compression="zstd", chunksize=1 << 30)
    return folder / "zeros.arrow"


def nothing(folder):
    """10^9 rows without a value."""
    with ipc.new_file(folder / "null.arrow", pa.schema({"y": pa.null()})) as writer:
        writer.write_batch(pa.record_batch({"y": pa.nulls(10**9)}))
    return folder / "null.arrow"


def views(folder):
    """Texts of 1 MB each, one a byte after the other."""
    word, n = b"abcdefghij" * (1 << 17), 20_000
    head = struct.pack("<i", len(word) - n)
    cells = [head + word[i : i + 4] + struct.pack("<ii", 0, i) for i in range(n)]
    buffers = [None, pa.py_buffer(b"".join(cells)), pa.py_buffer(word)]
    array = pa.Array.from_buffers(pa.string_view(), n, buffers)
    with ipc.new_stream(folder / "views.arrow", pa.schema({"y": array.type})) as writer:
        writer.write_batch(pa.record_batch({"y": array}))
    return folder / "views.arrow"


def long_line(folder):
    """A row of 1 GB, in 1 MB."""
    (folder / "line.csv.gz").write_bytes(gzip.compress(b"user,y\n") + MEGABYTE * 1000)
    return folder / "line.csv.gz"


def columns(folder):
    """A header of 10^6 columns, the first with a line break in its name."""
    names = ",".join(["user,y,'\"\n\"'", *(f"{i:x}" for i in range(600_000))])
    (folder / "columns.csv").write_text(names.replace("'", "") + "\n")
    return folder / "columns.csv"


def digits(folder):
    """3,000,000 pictures in 2 MB."""
    images = struct.pack(">4I", 2051, 3_000_000, 28, 28)
    name = folder / "train-images-idx3-ubyte.gz"
    name.write_bytes(gzip.compress(images) + MEGABYTE * 1000)
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b""))
    return folder


def archive(folder):
    """A header of 1 GB in an archive of 1 MB."""
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 1000 << 20
    path = folder / "cifar-10-binary.tar.gz"
    path.write_bytes(gzip.compress(entry.tobuf()) + MEGABYTE * 1000)
    return path


def memo(folder):
    """A pickle of 8 bytes with place 2^28 of its memo."""
    (folder / "memo").write_bytes(b"}r\xff\xff\xff\x0f.")
    return folder / "memo"


BOMBS = {
    many_rows: "table", long_word: "table", compressed: "table", nothing: "table", views: "table",
    long_line: "table", columns: "table", digits: "mnist", archive: "cifar", memo: "pickle",
}  # fmt: skip
SAID = [
    "rows.parquet must take at most 0.1 GiB of memory, by its size on disk; got 0.1 or more; "
    "MOML_TABLE_GB=1 allows more",
    "word.parquet must take at most 0.1 GiB",
    "zeros.arrow must take at most 0.1 GiB",
    "null.arrow must take at most 0.1 GiB of memory, by its size on disk; got 7.5 or more",
    "views.arrow must take at most 0.1 GiB",
    "line.csv.gz: rows must have at most 4 MB; does a quote end?",
    "columns.csv must have at most 100,000 columns; got more",
    "train-images-idx3-ubyte.gz must have at most 60,000 rows; got 3,000,000",
    "cifar-10-binary.tar.gz is truncated or damaged: a header is too large",
    "memo is not a pickled batch, or damaged: it has 7 bytes, but asks for the memo place 2684",
]


def test_small_files_take_little_memory(tmp_path):
    given = [f"{kind}={make(tmp_path)}" for make, kind in BOMBS.items()]
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert max(sizes) < 5 << 20
    done = subprocess.run(
        [sys.executable, "-c", READ, *given], capture_output=True, text=True,
        env=os.environ | {limits.VARIABLE: "0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *lines, megabytes = done.stdout.splitlines()
    for line, said in zip(lines, SAID, strict=True):
        assert said in line
    assert int(megabytes) < 250


def test_a_command_ends_in_one_line(tmp_path, monkeypatch, capsys):
    words = ["--task", "y", "--target", "y", "--out", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", ["moml", "train", "--data", str(nothing(tmp_path)), *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_rows_of_a_folder_count_together_and_the_bound_can_be_set(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("user,y\n" + "u1,2\n" * 40_000)
    monkeypatch.setenv(limits.VARIABLE, "0.001")  # 2 columns of 80,000 rows are 1.3 MB
    with pytest.raises(DataError, match=rf"^{tmp_path} must take at most 0.0 GiB of memory"):
        read_table(tmp_path)
    assert read_table(tmp_path / "a.csv").rows == 40_000
    monkeypatch.setenv(limits.VARIABLE, "1")
    assert read_table(tmp_path).rows == 80_000
    monkeypatch.setenv(limits.VARIABLE, "much")
    with pytest.raises(ConfigError, match="MOML_TABLE_GB must be a number; got 'much'"):
        read_table(tmp_path)


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_sizes_of_arrow_batches_are_found(tmp_path, monkeypatch, form, compression):
    words = pa.array(["a", "b"] * 40_000).dictionary_encode()
    table = pa.table({"y": zeros(80_000), "x": words})
    make = {"file": ipc.new_file, "stream": ipc.new_stream}[form]
    path, options = tmp_path / "t.arrow", ipc.IpcWriteOptions(compression=compression)
    with make(str(path), table.schema, options=options) as writer:
        writer.write_table(table)
    assert read_table(path).rows == 80_000
    extend_table(path, {"new": np.arange(80_000)}, tmp_path / "new.arrow")
    monkeypatch.setattr(limits, "SMALL", 600_000)  # its buffers have 640,000 bytes
    if compression is not None:
        with pytest.raises(DataError, match="must take at most"):
            extend_table(path, {"new": np.arange(80_000)}, tmp_path / "new.arrow")


def test_a_large_picture_is_not_decoded(tmp_path):
    size = struct.pack(">2I5B", 40_000, 40_000, 1, 0, 0, 0, 0)
    part = lambda kind, data: (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    )
    body = (
        part(b"IHDR", size) + part(b"IDAT", zlib.compress(bytes(50_000_000))) + part(b"IEND", b"")
    )
    path = tmp_path / "images_background" / "Latin" / "character01" / "0001_01.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    assert path.stat().st_size < 90_000
    with pytest.raises(DataError, match="must be 105 x 105, 1 bit; got 40000 x 40000"):
        omniglot.read(tmp_path, "background", whole=False)
    path.write_bytes(path.read_bytes() + bytes(100_000))
    with pytest.raises(DataError, match=r"0001_01\.png is too large"):
        omniglot.read(tmp_path, "background", whole=False)


def test_an_archive_of_many_members_or_a_large_file_is_refused(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(gzip.compress(tarfile.TarInfo("x").tobuf() * 1001))
    with pytest.raises(DataError, match="must have at most 1,000 files; got more"):
        cifar.read(path, "test")
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as made:
        entry = tarfile.TarInfo("cifar-10-batches-bin/batches.meta.txt")
        entry.size = 1 << 20
        made.addfile(entry, io.BytesIO(bytes(1 << 20)))
    path.write_bytes(gzip.compress(inner.getvalue()))
    with pytest.raises(DataError, match=r"batches\.meta\.txt must have at most 100,000 bytes"):
        cifar.read(path, "test")


def test_a_pickle_cannot_multiply_what_it_has():
    nested = b"(" + b"\x85q\x00h\x00\x86" * 60  # tuples of the same tuple twice
    with pytest.raises(DataError, match="a tuple is used twice"):
        loads(b"\x80\x02})" + nested + b"K\x01s.", "batch")
    with pytest.raises(DataError, match="a tuple is used twice"):
        loads(b"\x80\x02})2\x86K\x01s.", "batch")
    text = b"c_codecs\nencode\nq\x00X" + struct.pack("<I", 1000) + b"a" * 1000 + b"q\x01"
    again = b"h\x00h\x01X\x06\x00\x00\x00latin1\x86R" * 50
    with pytest.raises(DataError, match="a text is used too often"):
        loads(b"\x80\x02}X\x01\x00\x00\x00a(" + text + again + b"ls.", "batch")
    raw = pickle.dumps({"labels": [2**70], "data": np.zeros((1, 3072), np.uint8)}, 2)
    with pytest.raises(DataError, match=r"labels\[0\] = 1180591620717411303424 does not fit"):
        cifar._python(raw, "batch", cifar.BY_NAME["cifar-10-batches-py"])
