#!/usr/bin/env python3
"""nfc_table.py > common/base/nfc_table.h: what NFC needs of the Unicode database, as tables for common/base/nfc.c. The database is that of the
package unicodedata2 where it is installed, else Python's own; the header says which version it was. Later versions add characters and change
none (Unicode's stability policy), so that an older table is right for every character that it knows."""
import sys

try:
    import unicodedata2 as u
except ImportError:
    import unicodedata as u


def characters():
    return (c for c in range(sys.maxunicode + 1) if not (0xd800 <= c < 0xe000 or 0xac00 <= c < 0xd7a4))


def pieces(c):
    """The canonical mapping, one step, of a character that has one."""
    d = u.decomposition(chr(c))
    return None if not d or d[0] == "<" else [int(x, 16) for x in d.split()]


def lines(values, form, a_line):
    values = [form % v for v in values]
    return "\n".join("    " + " ".join(values[i:i + a_line]) for i in range(0, len(values), a_line))


def main():
    splits = [(c, *(pieces(c) + [0])[:2]) for c in characters() if pieces(c)]
    pairs = sorted((a, b, i) for i, (c, a, b) in enumerate(splits) if b and u.normalize("NFC", chr(c)) == chr(c))
    runs = []
    for c in characters():
        k = u.combining(chr(c))
        if k and runs and runs[-1][2] == k and runs[-1][1] == c - 1:
            runs[-1][1] = c
        elif k:
            runs.append([c, c, k])
    assert all(len(u.normalize("NFD", chr(c)).encode()) <= 3 * len(chr(c).encode()) for c in characters())
    assert all(b - a < 256 for a, b, _ in runs) and len(splits) < 65536
    print("#ifndef COMMON_BASE_NFC_TABLE_H\n#define COMMON_BASE_NFC_TABLE_H\n")
    print("/* Made by scripts/nfc_table.py from the Unicode database, version %s; not to be edited. */" % u.unidata_version)
    print("#include <stdint.h>\n")
    print("/* The canonical mapping of a character to one or two: character, first, second or 0, 21 bits each; in order of the characters. */")
    print("static const uint64_t splits[] = {\n%s\n};\n" % lines((c << 42 | a << 21 | b for c, a, b in splits), "0x%xu,", 6))
    print("/* Those of them that two characters become: places in splits, in order of first and second. */")
    print("static const uint16_t pairs[] = {\n%s\n};\n" % lines((i for _, _, i in pairs), "%d,", 22))
    print("/* Characters with a combining class that is not 0: first << 16 | how many more << 8 | class; in their order. */")
    print("static const uint64_t classes[] = {\n%s\n};" % lines((a << 16 | (b - a) << 8 | k for a, b, k in runs), "0x%xu,", 9))
    print("\n#endif")


if __name__ == "__main__":
    main()
