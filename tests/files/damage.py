"""Files that were damaged or made by hand."""

import pyarrow as pa


def damaged(data, rng):
    """The bytes with some of them changed, cut off, left out or put in."""
    data, place = bytearray(data), int(rng.integers(len(data)))
    match int(rng.integers(5)):
        case 0 | 1:
            for at in rng.integers(len(data), size=rng.integers(1, 4)):
                data[at] ^= int(rng.integers(1, 256))
        case 2:
            del data[place:]
        case 3:
            del data[place : place + int(rng.integers(1, 40))]
        case 4:
            data[place:place] = rng.bytes(int(rng.integers(1, 40)))
    return bytes(data)


def written(table, path, **options):
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer,
    ):
        writer.write_table(table)
    return path


def table_of(path):
    with pa.OSFile(str(path), "rb") as source:
        return pa.ipc.open_file(source).read_all()
