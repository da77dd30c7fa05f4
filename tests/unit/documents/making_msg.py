"""A mail of Outlook's, written by hand: a compound file with streams of at least 4,096 bytes, so that none is mini."""

import struct

SECTOR = 512
LEAST = 4096
END, FREE, FAT, NONE = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD, 0xFFFFFFFF
TEXT, BINARY = 0x001F, 0x0102
Tree = dict[str, "bytes | Tree"]


def outlook_mail(texts: dict[int, str], attachments: list[tuple[str, bytes]]) -> bytes:
    """A mail with properties by their numbers, such as 0x0037 (subject), and attached files."""
    tree: Tree = _storage(texts, {}, 32)
    for number, (name, content) in enumerate(attachments):
        tree[f"__attach_version1.0_#{number:08X}"] = _storage({0x3707: name}, {0x3701: content}, 8)
    return _compound(tree)


def _storage(texts: dict[int, str], binaries: dict[int, bytes], header: int) -> Tree:
    tree: Tree = {}
    properties = b"\0" * header
    for number, text in texts.items():
        tree[f"__substg1.0_{number:04X}{TEXT:04X}"] = text.ljust(LEAST // 2).encode("utf-16-le")
        properties += struct.pack("<HHIQ", TEXT, number, 6, LEAST)
    for number, content in binaries.items():
        tree[f"__substg1.0_{number:04X}{BINARY:04X}"] = content.ljust(LEAST)
        properties += struct.pack("<HHIQ", BINARY, number, 6, LEAST)
    tree["__properties_version1.0"] = properties.ljust(LEAST, b"\0")
    return tree


def _compound(tree: Tree) -> bytes:
    entries: list[list[int | str]] = [["Root Entry", 5, NONE, NONE, END, 0]]  # name, type, next, child, start, size
    contents: list[tuple[int, bytes]] = []

    def add(parent: int, children: Tree) -> None:
        before = -1
        for name, child in children.items():
            index = len(entries)
            entries.append([name, 2 if isinstance(child, bytes) else 1, NONE, NONE, END, 0])
            entries[parent if before < 0 else before][3 if before < 0 else 2] = index
            before = index
            if isinstance(child, bytes):
                contents.append((index, child))
            else:
                add(index, child)

    add(0, tree)
    sectors = b""
    fat: list[int] = []
    for index, content in contents:
        entries[index][4:] = [len(fat), len(content)]
        count = -(-len(content) // SECTOR)
        fat += [*range(len(fat) + 1, len(fat) + count), END]
        sectors += content.ljust(count * SECTOR, b"\0")
    directory = b"".join(_entry(*entry) for entry in entries)  # type: ignore[arg-type]
    first, count = len(fat), -(-len(directory) // SECTOR)
    fat += [*range(first + 1, first + count), END]
    sectors += directory.ljust(count * SECTOR, b"\0")
    tables = -(-(len(fat) + 8) // (SECTOR // 4))
    places = list(range(len(fat), len(fat) + tables))
    fat += [FAT] * tables
    fat += [FREE] * (tables * SECTOR // 4 - len(fat))
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 16 + struct.pack("<HHHHH6x", 62, 3, 0xFFFE, 9, 6)
    head += struct.pack("<IIIIIIIII", 0, tables, first, 0, LEAST, END, 0, END, 0)
    head += struct.pack("<109I", *places, *[FREE] * (109 - tables))
    return head + sectors + struct.pack(f"<{len(fat)}I", *fat)


def _entry(name: str, kind: int, following: int, child: int, start: int, size: int) -> bytes:
    wide = name.encode("utf-16-le") + b"\0\0"
    head = wide.ljust(64, b"\0") + struct.pack("<HBBIII", len(wide), kind, 1, NONE, following, child)
    return head + b"\0" * 36 + struct.pack("<IQ", start, size)
